"""Query, key and value come out of one packed linear, in whatever order its author cuts it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise

from torch import fx

from hfspeed.example import Example
from hfspeed.graph.nodes import value_of
from hfspeed.graph.rows import cuts, form, numbered
from hfspeed.pattern.edit import Change
from hfspeed.pattern.fusion import Fusion
from hfspeed.pattern.match import Match
from hfspeed.pattern.packed import Cut, recut
from hfspeed.pattern.terms import Pattern, Term
from hfspeed.plan import Heads, rows
from hfspeed.refusal import Reason

_NAMES = ("query", "key", "value")
_REST = """
q = q.view(1, 6, -1, 8).transpose(1, 2)
k = k.view(1, 6, -1, 8).transpose(1, 2)
v = v.view(1, 6, -1, 8).transpose(1, 2)
return self.o(attention(self, q, k, v, None, scaling=0.3)[0].reshape(1, 6, -1))
"""
_HEADS = "\nreturn self.o(attention(self, q, k, v, None)[0].reshape(1, 6, -1))"
_SLICES = """
qkv = self.qkv(x)
end = 2 * 16
q = qkv[..., :end]
k = qkv[..., end : end + 16]
v = qkv[..., end + 16 :]
"""
_STACKED = """
qkv = self.qkv(x).view(1, 6, 3, 4, 8).permute(2, 0, 3, 1, 4)
q, k, v = qkv.unbind(0)
"""
_GROUPED = """
qkv = self.qkv(x).view(1, 6, 2, 4, 8)
q = qkv[:, :, :, :-2].reshape(1, 6, -1, 8).transpose(1, 2)
k, v = qkv[:, :, :, -2].transpose(1, 2), qkv[..., -1, :].transpose(1, 2)
"""
_SPLIT = "q, k, v = self.qkv(x).split([32, 16, 16], dim=-1)"
_ONE_LINE = "query, key, value = self.qkv(x).split(self.qkv_sizes, dim=-1)\n"
_BY_HEAD = "unflatten(-1, (-1, self.qkv_head_sizes[{}])).transpose(1, 2)"
_WIDTHS = {"qkv": 64, "o": 16}


@dataclass(frozen=True)
class _Role:
    """One role: the value that is its alone, the packed rows it is made of in its order, and its author's form."""

    node: fx.Node
    rows: list[int]
    form: str
    heads: int
    size: int


class PackedHeads(Fusion):
    """The rows are put in the order query, key, value when they are loaded, so that each role is split by heads."""

    name = "packed_heads"

    fuses = (
        Example(_SLICES + _REST, widths=_WIDTHS, after=_ONE_LINE + "q = query\nk = key\nv = value\n\nq = q.view("),
        Example(_SPLIT + _REST, widths=_WIDTHS, after="q, k, v = self.qkv(x).split(self.qkv_sizes, dim=-1)"),
        Example(
            "v, k, q = torch.split(self.qkv(x), (16, 16, 32), -1)" + _REST,
            widths=_WIDTHS,
            after=_ONE_LINE + "v, k, q = (value, key, query)",
        ),
        Example(
            f"q, k, v = (one.unflatten(-1, (-1, 8)).transpose(1, 2) for one in {_SPLIT.partition('= ')[2]})\n" + _HEADS,
            widths=_WIDTHS,
            after="for one in self.qkv(x).split(self.qkv_sizes, dim=-1))",
        ),
        Example(
            _STACKED + _HEADS,
            widths={"qkv": 96, "o": 16},
            after=_ONE_LINE + f"q, k, v = (query.{_BY_HEAD.format(0)}, key.{_BY_HEAD.format(1)}, value.unflatten(",
        ),
        Example(
            _GROUPED + _HEADS,
            widths=_WIDTHS,
            after=_ONE_LINE + f"q = query.{_BY_HEAD.format(0)}\n"
            f"k, v = key.{_BY_HEAD.format(1)}, value.{_BY_HEAD.format(2)}",
        ),
    )
    refuses = (
        Example(
            "qkv = self.qkv(x)\n" + _SPLIT.replace("self.qkv(x)", "qkv") + _REST.rstrip() + " + qkv[..., :16]",
            widths=_WIDTHS,
            reason=Reason.USED_ELSEWHERE,
        ),
        Example(
            "qkv = self.qkv(x)\nqkv[..., :2] = x[..., :2]\n" + _SPLIT.replace("self.qkv(x)", "qkv") + _REST,
            widths=_WIDTHS,
            reason=Reason.NOT_HEADS,
        ),
        Example(_SPLIT.replace("(x)", "(x).clamp(-1, 1)") + _REST, widths=_WIDTHS, reason=Reason.NOT_HEADS),
        Example(
            "q, k, v, _ = self.qkv(x).split([32, 16, 16, 8], dim=-1)" + _REST,
            widths={**_WIDTHS, "qkv": 72},
            reason=Reason.NOT_HEADS,
        ),
    )

    def pattern(self, p: Pattern) -> Term:
        packed = p.comes_from("packed", p.value("x"))
        return p.attend("call", query=packed, key=packed, value=packed)

    def check(self, m: Match) -> None:
        roles = self._roles(m)
        for name, role in zip(_NAMES, roles, strict=True):
            wide, wanted = len(role.rows), f"{role.heads} heads of {role.size}"
            found = f"`{m.packed.name}` gives {wide} values for the {name}, not {wanted}"
            m.equal(len(role.rows), role.heads * role.size, Reason.NOT_HEADS, found, m.packed)
        found = f"`{m.packed.name}` gives more than query, key and value"
        m.equal(sorted(self._order(m)), list(range(m.packed.out_features)), Reason.NOT_HEADS, found, m.packed)
        if m.site.as_written:
            found = f"`{m.packed.name}` does not hold query, key and value one after the other"
            m.equal(self._order(m), list(range(m.packed.out_features)), Reason.NOT_HEADS, found, m.packed)
        elif not m.site.regroup and _by_heads(roles):
            m.refuse(Reason.NOT_HEADS, f"`{m.packed.name}` holds its rows head by head already", m.packed)

    def rewrite(self, m: Match) -> list[Change]:
        if m.site.as_written:
            assert m.site.recovered is not None  # a class that cannot be written out is refused here
            return []
        pieces = [Cut(name, role.node, role.form) for name, role in zip(_NAMES, self._roles(m), strict=True)]
        return recut(m.site, self.name, m.packed.node, pieces, m.packed.name)

    def plan(self, m: Match) -> Iterator[Heads]:
        query, key, value = self._roles(m)
        yield Heads(
            m.packed.path,
            parts=(m.packed.name,),
            inputs=m.packed.in_features,
            heads=query.heads,
            kv_heads=key.heads,
            head_size=query.size,
            value_size=value.size,
            bias=m.packed.bias,
            split=m.packed.name in m.site.split,
            rows=rows.runs(self._order(m)),
        )

    def note(self, m: Match) -> str:
        if m.site.as_written:
            return f"{m.packed.name} split by heads of query, key and value, cut as its author does"
        moved = "its rows reordered" if rows.runs(self._order(m)) else "as its rows stand"
        return f"{m.packed.name} in query, key and value, {moved}"

    def _order(self, m: Match) -> list[int]:
        return list(chain.from_iterable(role.rows for role in self._roles(m)))

    def _roles(self, m: Match) -> list[_Role]:
        """Query, key and value, found by following numbered rows through the author's code."""
        moved = numbered(m.packed.node)
        ends = [end for end in m.call.node.args[1:4] if isinstance(end, fx.Node)]
        found_cuts = cuts(m.packed.node, ends, moved)
        if found_cuts is None:
            found = f"query, key and value are not three plain pieces of `{m.packed.name}`"
            m.refuse(Reason.NOT_HEADS, found, m.packed)
        lead = value_of(m.packed.node).shape[:-1]
        roles = []
        for name, nodes, end in zip(_NAMES, found_cuts, ends, strict=True):
            heads, size = int(value_of(end).shape[1]), int(value_of(end).shape[3])
            told = [node for node in nodes if m.site.as_written or m.site.expression(node) is not None]
            if not told:
                m.refuse(Reason.CALLED_THROUGH_HELPER, f"the {name} is not cut by the forward itself", m.packed)
            formed = ((node, form(moved[node], lead, m.packed.out_features, size)) for node in told)
            role = next((_Role(node, *made, heads, size) for node, made in formed if made), None)
            if role is None:
                m.refuse(Reason.NOT_HEADS, f"the {name} is cut into a form that does not keep heads apart", m.packed)
            roles.append(role)
        return roles


def _by_heads(roles: list[_Role]) -> bool:
    """Whether each key head's rows stand together with those of its queries: then a share is whole heads."""
    groups = roles[1].heads
    cut = [(role.rows, len(role.rows) // groups) for role in roles]
    blocks = [[row for own, count in cut for row in own[at * count : (at + 1) * count]] for at in range(groups)]
    return groups > 1 and all(max(one) < min(other) for one, other in pairwise(blocks))
