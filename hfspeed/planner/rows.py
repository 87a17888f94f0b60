"""Whether a long row of tokens takes the same way as a short one: side by side, short prompts make long rows."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial

import torch
from torch import fx, nn

from hfspeed.graph.hollow import anew
from hfspeed.graph.nodes import function_name, is_attention
from hfspeed.graph.record import Recording, record
from hfspeed.pattern.replacement import place_of
from hfspeed.plan import History, Plan, Positions
from hfspeed.plan.paths import within
from hfspeed.planner.asked import BOUND
from hfspeed.planner.build import build
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.largest import Largest
from hfspeed.planner.mismatch import BOUNDS, arithmetic
from hfspeed.planner.prompts import prompt, taken
from hfspeed.planner.study import TOKENS, TRIED, Study
from hfspeed.planner.tables import tables
from hfspeed.planner.ways import line, other_ways
from hfspeed.planner.witness import distance
from hfspeed.reference.asking import scores
from hfspeed.refusal import Reason, Refusal

LONG = 1 << 17
"""Tokens of the row that is tried on meta, where length costs nothing; hardly a batch is longer."""
RUN = 1 << 10
"""Tokens that are run with numbers, to see whether another way gives the same."""
SQUARE = 1 << 12
"""Tokens of the row that is tried on meta, where a matrix of all of them by all of them has values."""
ROOM = 1 << 28
"""Elements that all tensors with values may have together there; some gibibytes, if none of them is given back."""
MOST = 1 << 13
"""The same where a module chooses among many tokens."""
RECKONING = {
    "add", "sub", "mul", "multiply", "div", "divide", "truediv", "true_divide", "floordiv", "floor_divide", "pow",
    "mod", "remainder", "lt", "le", "gt", "ge", "eq", "ne", "clamp", "where", "masked_fill",
    "scaled_dot_product_attention",
}  # fmt: skip
"""Operations whose plain numbers are values, not sizes."""


@dataclass(frozen=True)
class LongRows:
    """Why long rows may not be served.

    Attributes:
        ways: classes that run other operations on them, and do not give the same by them.
        numbers: classes that take other numbers, and do not give the same or take them beyond what can be run.
        answers: the first tokens are answered otherwise, in whatever way.
    """

    ways: tuple[Refusal, ...] = ()
    numbers: tuple[Refusal, ...] = ()
    answers: tuple[Refusal, ...] = ()

    def rest(self, plan: Plan) -> tuple[Refusal, ...]:
        """What other proofs left to be told.

        A module that ``plan`` runs on whole sequences may count their tokens, and beyond the limit of a table none is
        served.
        """
        apart = [op.path for op in plan.ops if isinstance(op, History)]
        counted = [no for no in self.numbers if not within(no.module, apart)]
        limited = any(op.limit for op in plan.ops if isinstance(op, Positions))
        return tuple(counted) or (() if limited else self.answers)


def long_rows(small: Study, limit: int = 0) -> LongRows:
    """What changes on a long row; beyond ``limit``, if there is one, none is served."""
    same = cache(partial(_same, small))
    if no := _chosen(small):
        return LongRows(ways=(no,))
    found, loops = _on_meta(small, same)
    if found.ways or loops or limit or same():
        return found
    nowhere = Refusal("model", Reason.VALUE_VARIES, "", type(small.model).__name__)
    return replace(found, answers=_told("gives its first tokens other answers than a short one does", (nowhere,)))


def _longest(small: Study) -> int:
    """Tokens to be run: more than modules that attend as written choose."""
    return max([RUN, *(2 * count for how in small.written.values() for count in how.counts)])


def _chosen(small: Study) -> Refusal | None:
    """A refusal if a module chooses so many tokens that no row is run of which it leaves any out."""
    for path, how in small.written.items():
        if 2 * max(how.counts, default=0) > MOST:
            found = (
                f"it chooses {max(how.counts)} tokens, and no more than {MOST} are run to see what it does then"
            )
            help_ = "let the number be one of the configuration, that a small model can have smaller"
            return Refusal("attention", Reason.VALUE_VARIES, found, path, help=help_)
    return None


def _on_meta(small: Study, same: Callable[[], bool]) -> tuple[LongRows, bool]:
    """What is refused, and whether the forward loops over tokens, so that a long row would take as long.

    A forward that reads values does not run there without them; it was looked at with late positions.
    """
    if small.recording.reads:
        return LongRows(), False
    model = build(type(small.model), small.model.config, device="meta", interface=small.interface)

    def seen(tokens: int) -> Recording:
        return record(model, prompt(model, tokens), shut=small.shut)

    try:
        short, more = seen(TOKENS), seen(3 * TOKENS)
        if _count(short) != _count(more):
            return LongRows(), True
        with Largest() as made, anew():
            ran = taken(seen, 3 * TOKENS, RUN)
        # what is made of values, and not on meta, takes room: some make masks of all tokens by all tokens
        most = taken(seen, ran, _longest_on_meta(made, ran)) if ran == RUN else ran
        middle, long = seen(ran), seen(most)
    except AUTHOR_ERRORS:
        return LongRows(), False  # a forward that does not take long rows says so when it is served
    limited = {op.path for op in tables(small) if op.limit}  # all of its rows are given, and no more are served
    if differing := _differing(short, long, limited):
        bad = _differing(middle, long, limited) or not same()
        told = "runs other operations than on a short one, and computes something else"
        return LongRows(_told(told, differing) if bad else ()), False
    pairs = (short, middle), (middle, long)
    early, late = ({step for step in _numbers(*pair) if step[0] not in limited} for pair in pairs)
    changed = _at(long, late - early) or (_at(middle, early) if early and not same() else ())
    return LongRows(numbers=_told("computes with other numbers than on a short one", changed)), False


def _longest_on_meta(made: Largest, ran: int) -> int:
    """How long a row may be, if one of ``ran`` tokens made so much; a number read off values takes real attention."""
    if made.elements < ran * ran:
        return LONG
    return max(ran, min(SQUARE, int(ran * math.sqrt(ROOM / made.total))))


def _told(found: str, where: Iterable[Refusal]) -> tuple[Refusal, ...]:
    help_ = "make it a function of each token and its position; several sequences share a row"
    told = f"on a long row of tokens it {found}"
    return tuple(Refusal("model", Reason.VALUE_VARIES, told, one.module, one.place, help=help_) for one in where)


def _numbers(one: Recording, other: Recording) -> set[tuple[str, int]]:
    """Steps, by path and place, that take another plain number in ``other``; sizes of what is made do not count."""
    found = set()
    for path, call in one.calls.items():
        after = other.calls[path].graph.nodes if path in other.calls else ()
        for number, (node, later) in enumerate(zip(call.graph.nodes, after, strict=False)):
            if _reckons(node) and _plain(node) != _plain(later):
                found.add((path, number))
    return found


def _at(recording: Recording, steps: set[tuple[str, int]]) -> tuple[Refusal, ...]:
    """One for each class that has one of the steps."""
    found: dict[type[nn.Module], Refusal] = {}
    for path, number in sorted(steps):
        call = recording.calls[path]
        place = line(list(call.graph.nodes)[number]) or place_of(call)
        found.setdefault(call.cls, Refusal("model", Reason.VALUE_VARIES, "", path, place))
    return tuple(found.values())


def _reckons(node: fx.Node) -> bool:
    word = (function_name(node) or "").strip("_")
    return word in RECKONING or word.lstrip("ri") in RECKONING or is_attention(node)


def _plain(node: fx.Node) -> list[float]:
    """The numbers among what a step is given."""
    return [value for value in (*node.args, *node.kwargs.values()) if isinstance(value, bool | int | float)]


def _count(recording: Recording) -> int:
    """Operations that were run."""
    return sum(len(call.graph.nodes) for call in recording.calls.values())


def _differing(one: Recording, other: Recording, but: Collection[str]) -> tuple[Refusal, ...]:
    """One refusal for each class that runs other operations in one of two rows, ``but`` modules at some paths."""
    found = other_ways(one, other, layers=False) or other_ways(other, one, layers=False)
    return tuple(no for no in found if no.module not in but)


def _same(small: Study) -> bool:
    """The first tokens of a long row get the logits that they get in a short one, as far as rows can be that long."""
    for tokens in (_longest(small), TRIED):
        try:
            return _first_are_equal(small, tokens)
        except AUTHOR_ERRORS:
            continue
    return True


def _first_are_equal(small: Study, longest: int) -> bool:
    for exact in (arithmetic(torch.float64), nullcontext()):  # a table made anew is more exact than the first one
        model = copy.deepcopy(small.fresh)  # what a long row leaves behind stays there
        with torch.no_grad(), exact:
            outs = [model(**prompt(model, tokens)) for tokens in (TOKENS, longest, TOKENS)]
        first, longer, again = (scores(out)[:, :TOKENS] for out in outs)
        if first.shape[1] != TOKENS:  # of the last token alone
            return True
        if distance(again, longer) <= BOUNDS[torch.float64] and distance(first, longer) <= BOUND:
            return True
    return False
