"""Query, key and value projections of one input are one GEMM, split by heads."""

from __future__ import annotations

from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.graph.nodes import value_of
from hfspeed.pattern.edit import Change
from hfspeed.pattern.fusion import Fusion
from hfspeed.pattern.match import Match
from hfspeed.pattern.stack import stacked
from hfspeed.pattern.terms import Pattern, Term
from hfspeed.plan import Heads
from hfspeed.refusal import Reason

_PROJECT = """
q = self.q(x).view(1, 6, -1, 8).transpose(1, 2)
k = self.k(x).view(1, 6, -1, 8).transpose(1, 2)
v = self.v(x).view(1, 6, -1, 8).transpose(1, 2)
return self.o(attention(self, q, k, v, None, scaling=0.3)[0].reshape(1, 6, -1))
"""
_WIDTHS = {"q": 32, "k": 16, "v": 16, "o": 16}


class HeadProjections(Fusion):
    """Three projections that meet in the attention interface read their input once."""

    name = "heads"

    fuses = (
        Example(
            _PROJECT,
            widths=_WIDTHS,
            after="""
            q_out, k_out, v_out = self.qkv_proj(x).split(self.qkv_proj_sizes, dim=-1)
            q = q_out.view(1, 6, -1, 8).transpose(1, 2)
            """,
        ),
        Example(
            """
            k = self.k(x).view(1, 6, -1, 8).transpose(1, 2)
            q = self.norm(self.q(x).view(1, 6, -1, 8)).transpose(1, 2)
            v = self.v(x).view(1, 6, -1, 8).transpose(1, 2) if self.v is not None else k
            return self.o(attention(self, q, k, v, None)[0].reshape(1, 6, -1))
            """,
            widths=_WIDTHS,
            children={"norm": "nn.RMSNorm(8)"},
        ),
        Example(
            """
            q = self.q(x).view(1, 6, -1, 8).transpose(1, 2)
            source = x if self.own is None else self.own
            if self.own is None:
                k = self.k(source).view(1, 6, -1, 8).transpose(1, 2)
                v = self.v(source).view(1, 6, -1, 8).transpose(1, 2)
            return self.o(attention(self, q, k, v, None)[0].reshape(1, 6, -1))
            """,
            widths=_WIDTHS,
            children={"own": "None"},
            after="""
            if self.own is None:
                if source is not x:
                    raise NotImplementedError(
            """,
        ),
    )
    refuses = (
        Example(
            _PROJECT.replace("self.k(x)", "self.k(y)"), widths=_WIDTHS, reason=Reason.INPUTS_DIFFER
        ),
        Example(
            _PROJECT.replace("\nv =", "\nx.mul_(2)\nv ="),
            widths=_WIDTHS,
            reason=Reason.INPUTS_DIFFER,
        ),
        Example(
            _PROJECT.strip() + " + self.v(x).mean()", widths=_WIDTHS, reason=Reason.CALLED_TWICE
        ),
        Example(
            _PROJECT.replace("self.q(x)", "self.q(x)[..., :32]"),
            widths={**_WIDTHS, "q": 64},
            reason=Reason.NOT_HEADS,
        ),
    )

    def pattern(self, p: Pattern) -> Term:
        return p.attend(
            "call",
            query=p.comes_from("q", p.value("x")),
            key=p.comes_from("k", p.value("y")),
            value=p.comes_from("v", p.value("z")),
        )

    def check(self, m: Match) -> None:
        three = (m.q, m.k, m.v)
        for other, value in ((m.k, m.y), (m.v, m.z)):
            found = f"`{m.q.name}` and `{other.name}` read different values"
            m.same(m.x, value, Reason.INPUTS_DIFFER, found, other)
        if len({b.node for b in three}) != 3:
            m.refuse(Reason.NOT_HEADS, f"one projection, `{m.k.name}`, serves two roles", m.k)
        for part, (heads, size) in zip(three, self._shapes(m), strict=True):
            found = f"`{part.name}` gives {part.out_features} values, not {heads} heads of {size}"
            m.equal(part.out_features, heads * size, Reason.NOT_HEADS, found, part)
        biases = {part.bias for part in three}
        m.equal(len(biases), 1, Reason.BIAS_DIFFERS, "only some of the projections have a bias", m.k)

    def rewrite(self, m: Match) -> list[Change]:
        return stacked(m.site, self.name, [b.node for b in (m.q, m.k, m.v)], self._merged(m))

    def plan(self, m: Match) -> Iterator[Heads]:
        (heads, size), (kv_heads, _), (_, value_size) = self._shapes(m)
        yield Heads(
            m.site.below(self._merged(m)),
            parts=(m.q.name, m.k.name, m.v.name),
            inputs=m.q.in_features,
            heads=heads,
            kv_heads=kv_heads,
            head_size=size,
            value_size=value_size,
            bias=m.q.bias,
            split=m.q.name in m.site.split,
        )

    def note(self, m: Match) -> str:
        return f"{m.q.name} + {m.k.name} + {m.v.name} -> {self._merged(m)}"

    def _merged(self, m: Match) -> str:
        return m.site.free_name("qkv_proj")

    def _shapes(self, m: Match) -> list[tuple[int, int]]:
        """Heads and head size of query, key and value, as the interface was given them."""
        return [(int(v.shape[1]), int(v.shape[3])) for v in map(value_of, m.call.node.args[1:4])]
