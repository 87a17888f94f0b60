"""A function that turns query and key by position becomes one kernel, if running it shows that it does."""

from __future__ import annotations

import ast
from typing import Final

from hfspeed.example import Example
from hfspeed.pattern.edit import Change, changed
from hfspeed.pattern.fresh import is_fresh
from hfspeed.pattern.fusion import Fusion
from hfspeed.pattern.site import Site
from hfspeed.pattern.turning import Turn, Way, slots, stands, turns, way_of
from hfspeed.plan import Rotary
from hfspeed.refusal import Reason, Refusal

_HEADS: Final = """
q = self.q(x).view(1, 6, -1, 8).transpose(1, 2)
k = self.k(y).view(1, 6, -1, 8).transpose(1, 2)
c, s = x[..., :4].cos(), x[..., :4].sin()
"""
_HALVES: Final = "c, s = torch.cat((c, c), -1), torch.cat((s, s), -1)\n"
_TURN: Final = "q, k = self.turn(q, k, c, s)\n"
_OUT: Final = "return self.o(q.transpose(1, 2).flatten(2)) + self.p(k.transpose(1, 2).flatten(2))"
_HALF: Final = "torch.cat((-t[..., 4:], t[..., :4]), -1)"
_WIDTHS: Final = {"q": 32, "k": 32, "o": 16, "p": 16}


def _turn(one: str) -> dict[str, str]:
    return {"turn": f"lambda q, k, c, s: tuple({one} for t in (q, k))"}


class RotaryEmbedding(Fusion):
    """One call takes query, key, cosines and sines, or one of the heads with both."""

    name = "rotary"

    fuses = (
        Example(
            _HEADS + _HALVES + _TURN + _OUT,
            after="q, k = self.rotary(q, k, c, s)",
            widths=_WIDTHS,
            children=_turn(f"t * c[:, None] + {_HALF} * s[:, None]"),
        ),
        Example(
            _HEADS + "q = self.turn(q, c, s)\nk = self.turn(k, c, s)\n" + _OUT,
            after="q = self.rotary(q, None, c, s)[0]\nk = self.rotary(k, None, c, s)[0]",
            widths=_WIDTHS,
            children={
                "turn": "lambda t, c, s: torch.stack((t[..., ::2] * c[:, None] - t[..., 1::2] * s[:, None],"
                " t[..., 1::2] * c[:, None] + t[..., ::2] * s[:, None]), -1).flatten(-2)"
            },
        ),
    )
    refuses = (
        Example(
            _HEADS + _HALVES + _TURN + _OUT,
            widths=_WIDTHS,
            children=_turn(f"t * c[:, None] - {_HALF} * s[:, None]"),
            reason=Reason.NUMBERS_DIFFER,
        ),
        Example(
            _HEADS + _HALVES + _TURN + _OUT,
            widths=_WIDTHS,
            children=_turn(f"t * c[:, None] + {_HALF} * s[:, None] * 1.01"),
            reason=Reason.NUMBERS_DIFFER,
        ),
    )

    def apply(self, site: Site) -> None:
        """Rewrite every call at ``site`` that turns heads, all by one op."""
        for turn in turns(site):
            way = way_of(turn)
            if way is not None and not stands(turn, way):
                found = "half of the cosines and sines would not be read, and they are not known to stand twice"
                no = Refusal(self.name, Reason.VALUE_VARIES, found, site.path, site.place(turn.nodes[0]), 2)
                site.refusals.append(no)
                continue
            op = self._op(site, turn, way) if way else None
            if op is None:
                found = f"`{ast.unparse(turn.call.func)}` does not turn pairs of elements by cosines and sines"
                place = site.place(turn.nodes[0])
                site.refusals.append(Refusal(self.name, Reason.NUMBERS_DIFFER, found, site.path, place, 2))
                continue
            change = Change("replace", turn.call, _text(site, turn, op))
            if (known := _known(site)) not in (None, op) or not _fits(site, change):
                continue  # a second way to turn in one module stays as it is, and so does what another fusion changed
            site.changes.append(change)
            if known is None:
                site.ops.append(op)
                site.promised.append(op.path.rpartition(".")[2])
                site.notes.append(f"{ast.unparse(turn.call.func)} -> {op.path.rpartition('.')[2]}")

    def _op(self, site: Site, turn: Turn, way: Way) -> Rotary:
        known = _known(site)
        path = known.path if known else site.below(site.free_name("rotary"))
        fresh = all(is_fresh(node, set(turn.nodes)) for node in turn.heads)
        return Rotary(path, way.tokens, way.table, way.interleaved, fresh)


def _known(site: Site) -> Rotary | None:
    return next((op for op in site.ops if isinstance(op, Rotary)), None)


def _fits(site: Site, change: Change) -> bool:
    try:
        changed(site.recovered, [*site.changes, change])
    except ValueError:
        return False
    return True


def _text(site: Site, turn: Turn, op: Rotary) -> str:
    given = [site.recovered.segment(slot) for slot in slots(turn.call)]
    name = f"{site.recovered.self_name}.{op.path.rpartition('.')[2]}"
    if len(given) == 3:
        return f"{name}({given[0]}, None, {given[1]}, {given[2]})[0]"
    return f"{name}({', '.join(given)})"
