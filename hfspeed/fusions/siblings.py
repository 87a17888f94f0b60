"""Linears that read one value are one GEMM, whatever becomes of their results."""

from __future__ import annotations

from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.pattern.edit import Change
from hfspeed.pattern.fusion import Fusion
from hfspeed.pattern.match import Bound, Match
from hfspeed.pattern.stack import stacked
from hfspeed.pattern.terms import Pattern, Term
from hfspeed.plan import Stacked
from hfspeed.refusal import Reason


class SiblingLinears(Fusion):
    """The last resort of projections that no better fusion took: read their input once."""

    name = "siblings"

    fuses = (
        Example(
            """
            first = self.first(x)
            if first is not None:
                second = self.second(x)
            return first.softmax(-1) * second
            """,
            after="""
            first_out, second_out = self.first_second(x).split(self.first_second_sizes, dim=-1)
            first = first_out
            if first is not None:
                second = second_out
            """,
        ),
        Example(
            "return torch.tanh(self.a(x)) + self.b(x)[..., :4] * self.c(x)[..., :4].sum(-1, True)",
            widths={"a": 4},
            after="""
            a, b, c = self.a_b_c(x).split(self.a_b_c_sizes, dim=-1)
            return torch.tanh(a) + b[..., :4] * c[..., :4].sum(-1, True)
            """,
        ),
    )
    refuses = (
        Example(
            """
            a = self.a(x)
            if self.training:
                x = x + 1
            return a * self.b(x)
            """,
            reason=Reason.INPUT_WRITTEN,
        ),
        Example(
            """
            first = self.first(x)
            for _ in range(1):
                second = self.second(x)
            return first.softmax(-1) * second
            """,
            reason=Reason.DIFFERENT_BLOCKS,
        ),
        Example(
            """
            if x.ndim == 3:
                first = self.first(x)
            if x.ndim > 1:
                second = self.second(x)
            return first.softmax(-1) * second
            """,
            reason=Reason.DIFFERENT_BLOCKS,
        ),
        Example(
            "return self.a(x).sum() * sum(layer(x) for layer in (self.b, self.c))",
            reason=Reason.CALLED_THROUGH_HELPER,
        ),
    )

    def pattern(self, p: Pattern) -> Term:
        return p.readers("part", p.value("x"))

    def check(self, m: Match) -> None:
        parts = self._parts(m)
        biases = {part.bias for part in parts}
        m.equal(len(biases), 1, Reason.BIAS_DIFFERS, "only some of the linears have a bias", parts[1])
        split = {part.name in m.site.split for part in parts}
        found = "only some of the linears can be split over ranks"
        m.equal(len(split), 1, Reason.MIXES_SPLIT, found, parts[1])

    def rewrite(self, m: Match) -> list[Change]:
        return stacked(m.site, self.name, [p.node for p in self._parts(m)], self._merged(m))

    def plan(self, m: Match) -> Iterator[Stacked]:
        parts = self._parts(m)
        yield Stacked(
            m.site.below(self._merged(m)),
            parts=tuple(part.name for part in parts),
            inputs=parts[0].in_features,
            sizes=tuple(part.out_features for part in parts),
            bias=parts[0].bias,
            split=parts[0].name in m.site.split,
            segments=tuple(cut for part in parts for cut in m.site.segments.get(part.name, ())),
        )

    def note(self, m: Match) -> str:
        return " + ".join(part.name for part in self._parts(m)) + f" -> {self._merged(m)}"

    def _parts(self, m: Match) -> list[Bound]:
        return [bound for role, bound in m.bound.items() if role.startswith("part_")]

    def _merged(self, m: Match) -> str:
        names = [part.name.replace(".", "_") for part in self._parts(m)]
        return m.site.free_name("_".join(names))
