"""Gate and up read one input and meet in a product."""

from __future__ import annotations

from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.graph.nodes import ACTIVATIONS
from hfspeed.pattern.edit import Change
from hfspeed.pattern.fusion import Fusion
from hfspeed.pattern.match import Match
from hfspeed.pattern.product import fused_product
from hfspeed.pattern.terms import Pattern, Term
from hfspeed.plan import Gated, Op, Stacked
from hfspeed.refusal import Reason

_ACT = {"act": "nn.SiLU()"}
_ONE_CALL = "return self.down(self.act_and_mul(self.gate_up_proj(x)))"


class GatedLinear(Fusion):
    """Two projections of one input become one, and the product becomes its epilogue."""

    name = "gated"

    fuses = (
        Example(
            "return self.down(self.act(self.gate(x)) * self.up(x))", after=_ONE_CALL, children=_ACT
        ),
        Example("return self.down(self.up(x) * F.silu(self.gate(x)))", after=_ONE_CALL),
        Example(
            """
            gate = F.gelu(self.gate(x), approximate="tanh")
            up = self.up(x)
            return self.down(gate * up)
            """,
            after="""
            gate_up = self.gate_up_proj(x)
            return self.down(self.act_and_mul(gate_up))
            """,
        ),
        Example("return self.down(F.silu(self.gate(x).float()).to(x.dtype) * self.up(x))"),
        Example("return self.down(torch.mul(F.gelu(self.gate(x)), self.up(x)))"),
    )
    refuses = (
        Example("return self.down(F.silu(self.gate(x)) * self.up(y))", reason=Reason.INPUTS_DIFFER),
        Example(
            "return F.silu(self.gate(x)) * self.up(x)",
            widths={"up": 1},
            reason=Reason.WIDTHS_DIFFER,
        ),
        Example(
            "return self.down(torch.sin(self.gate(x)) * self.up(x))", reason=Reason.NO_GATED_KERNEL
        ),
        Example(
            """
            g = self.gate(x)
            x = x + 1
            return self.down(F.silu(g) * self.up(x))
            """,
            reason=Reason.INPUTS_DIFFER,
        ),
        Example(
            "return self.down(F.silu(self.gate(x)) * self.up(x)) + self.gate.weight.sum()",
            reason=Reason.USED_ELSEWHERE,
        ),
    )

    def pattern(self, p: Pattern) -> Term:
        gated = p.act("act", p.linear("gate", p.value("x")))
        return gated * p.linear("up", p.value("y"))

    def check(self, m: Match) -> None:
        found = f"`{m.gate.name}` and `{m.up.name}` read different values"
        m.same(m.x, m.y, Reason.INPUTS_DIFFER, found, m.up)
        found = f"`{m.gate.name}` gives {m.gate.out_features} values, `{m.up.name}` {m.up.out_features}"
        m.equal(m.gate.out_features, m.up.out_features, Reason.WIDTHS_DIFFER, found, m.up)
        found = "the activation is none of " + ", ".join(sorted(ACTIVATIONS))
        m.among(m.act.kind, ACTIVATIONS, Reason.NO_GATED_KERNEL, found, m.act)
        found = f"only one of `{m.gate.name}` and `{m.up.name}` has a bias"
        m.equal(m.gate.bias, m.up.bias, Reason.BIAS_DIFFERS, found, m.up)

    def rewrite(self, m: Match) -> list[Change]:
        parts = [m.gate.node, m.up.node]
        changes = fused_product(m.site, self.name, m.root, parts, *self._names(m))
        if changes is None:
            m.refuse(Reason.USED_ELSEWHERE, "a temporary of the product serves another purpose")
        return changes

    def plan(self, m: Match) -> Iterator[Op]:
        merged, kernel = self._names(m)
        yield Stacked(
            m.site.below(merged),
            parts=(m.gate.name, m.up.name),
            inputs=m.gate.in_features,
            sizes=(m.gate.out_features, m.up.out_features),
            bias=m.gate.bias,
            split={m.gate.name, m.up.name} <= m.site.split,
        )
        yield Gated(m.site.below(kernel), m.act.kind)

    def note(self, m: Match) -> str:
        merged, kernel = self._names(m)
        return f"{m.gate.name} + {m.up.name} -> {merged}, {kernel} ({m.act.kind})"

    def _names(self, m: Match) -> tuple[str, str]:
        return m.site.free_name("gate_up_proj"), m.site.free_name("act_and_mul")
