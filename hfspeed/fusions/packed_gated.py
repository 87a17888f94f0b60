"""Gate and up come out of one packed linear, are cut apart, and meet in a product."""

from __future__ import annotations

from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.graph.nodes import ACTIVATIONS, value_of
from hfspeed.graph.rows import form, numbered
from hfspeed.pattern.edit import Change
from hfspeed.pattern.fusion import Fusion
from hfspeed.pattern.match import Match
from hfspeed.pattern.product import fused_halves
from hfspeed.pattern.terms import Pattern, Term
from hfspeed.plan import Gated, Op, Stacked, rows
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
        Example(
            """
            up, gate = self.both(x).chunk(2, dim=-1)
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
            gate, up = both[..., ::2], both[..., 1::2]
            return self.down(F.silu(gate) * up)
            """,
            widths={"both": 48},
            after="""
            gate_up = self.both(x)
            return self.down(self.act_and_mul(gate_up))
            """,
        ),
    )
    refuses = (
        Example(
            """
            up, gate = self.both(x).chunk(2, dim=-1)
            return self.down(up * F.silu(gate)) + up.mean()
            """,
            widths={"both": 48},
            reason=Reason.NOT_A_PLAIN_CALL,
        ),
        Example(
            """
            up, gate = self.both(x).chunk(2, dim=-1)
            return self.down(up * F.silu(gate)) + self.both.bias.mean()
            """,
            widths={"both": 48},
            reason=Reason.USED_ELSEWHERE,
        ),
        Example(
            """
            both = self.both(x)
            return self.down(F.silu(both[..., :24]) * both[..., 12:36])
            """,
            widths={"both": 48},
            reason=Reason.NO_GATED_KERNEL,
        ),
        Example(
            """
            gate, up = self.both(x).chunk(2, dim=-1)
            return self.down(torch.sin(gate) * up)
            """,
            widths={"both": 48},
            reason=Reason.NO_GATED_KERNEL,
        ),
    )

    def pattern(self, p: Pattern) -> Term:
        packed = p.linear("packed", p.value("x"))
        return p.act("act", p.piece("gate", packed)) * p.piece("up", packed)

    def check(self, m: Match) -> None:
        found = f"the factors are not two halves of what `{m.packed.name}` gives"
        m.equal(sorted(self._order(m)), list(range(m.packed.out_features)), Reason.NO_GATED_KERNEL, found, m.act)
        found = "the activation is none of " + ", ".join(sorted(ACTIVATIONS))
        m.among(m.act.kind, ACTIVATIONS, Reason.NO_GATED_KERNEL, found, m.act)

    def rewrite(self, m: Match) -> list[Change]:
        moved = bool(rows.runs(self._order(m)))
        changes = fused_halves(m.site, self.name, m.root, m.packed.node, self._kernel(m), moved=moved)
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
            rows=rows.runs(self._order(m)),
        )
        yield Gated(m.site.below(self._kernel(m)), m.act.kind)

    def note(self, m: Match) -> str:
        return f"{m.packed.name} in halves, {self._kernel(m)} ({m.act.kind})"

    def _order(self, m: Match) -> list[int]:
        """The rows that are activated, then those they are multiplied with; empty where that cannot be told."""
        moved, wide = numbered(m.packed.node), m.packed.out_features
        lead = value_of(m.packed.node).shape[:-1]
        order: list[int] = []
        for piece in (m.gate, m.up):
            if piece.node in moved:
                found = form(moved[piece.node], lead, wide, 0)
                order += found[0] if found and not found[1] else []
            elif isinstance(piece.index, int):  # cut behind a cast
                order += range(piece.index * wide // 2, (piece.index + 1) * wide // 2)
        return order

    def _kernel(self, m: Match) -> str:
        return m.site.free_name("act_and_mul")
