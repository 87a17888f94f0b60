"""Gate and up come out of one packed linear, are cut apart, and meet in a product."""

from __future__ import annotations

from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.graph.nodes import ACTIVATIONS
from hfspeed.pattern.edit import Change
from hfspeed.pattern.fusion import Fusion
from hfspeed.pattern.match import Match
from hfspeed.pattern.product import fused_halves
from hfspeed.pattern.terms import Pattern, Term
from hfspeed.plan import Gated, Op, Stacked
from hfspeed.refusal import Reason


class PackedGatedLinear(Fusion):
    """One projection already holds both halves: only the product is fused, and each half split by itself."""

    name = "packed_gated"

    fuses = (
        Example(
            """
            gate, up = self.both(x).chunk(2, dim=-1)
            return self.down(up * F.silu(gate))
            """,
            widths={"both": 48},
            after="""
            gate_up = self.both(x)
            return self.down(self.act_and_mul(gate_up))
            """,
        ),
        Example(
            """
            both = self.both(x)
            gate, up = both.split(24, dim=-1)
            up = up * F.gelu(gate)
            return self.down(up)
            """,
            widths={"both": 48},
            after="""
            gate_up = self.both(x)
            up = self.act_and_mul(gate_up)
            return self.down(up)
            """,
        ),
    )
    refuses = (
        Example(
            """
            up, gate = self.both(x).chunk(2, dim=-1)
            return self.down(up * F.silu(gate))
            """,
            widths={"both": 48},
            reason=Reason.NO_GATED_KERNEL,
        ),
    )

    def pattern(self, p: Pattern) -> Term:
        packed = p.linear("packed", p.value("x"))
        return p.act("act", p.piece("gate", packed)) * p.piece("up", packed)

    def check(self, m: Match) -> None:
        found = f"the second half of `{m.packed.name}` is activated; kernels activate the first"
        m.equal((m.gate.index, m.up.index), (0, 1), Reason.NO_GATED_KERNEL, found, m.act)
        found = "the activation is none of " + ", ".join(sorted(ACTIVATIONS))
        m.among(m.act.kind, ACTIVATIONS, Reason.NO_GATED_KERNEL, found, m.act)

    def rewrite(self, m: Match) -> list[Change]:
        changes = fused_halves(m.site, self.name, m.root, m.packed.node, self._kernel(m))
        if changes is None:
            m.refuse(Reason.NOT_A_PLAIN_CALL, "the product is not one expression behind the cut")
        return changes

    def plan(self, m: Match) -> Iterator[Op]:
        half = m.packed.out_features // 2
        yield Stacked(
            m.packed.path,
            parts=(m.packed.name,),
            inputs=m.packed.in_features,
            sizes=(half, half),
            bias=m.packed.bias,
            split=m.packed.name in m.site.split,
        )
        yield Gated(m.site.below(self._kernel(m)), m.act.kind)

    def note(self, m: Match) -> str:
        return f"{m.packed.name} in halves, {self._kernel(m)} ({m.act.kind})"

    def _kernel(self, m: Match) -> str:
        return m.site.free_name("act_and_mul")
