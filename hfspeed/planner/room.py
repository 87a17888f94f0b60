"""How many positions a model has rows for: beyond the end of a table of them its author's code fails."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import torch
from torch import fx

from hfspeed.graph.nodes import function_name, value_of
from hfspeed.graph.record import Recording
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.study import TOKENS, Study, recorded_again

MOST: Final = 1 << 17
"""Tables with more rows than these are not looked at: no sequence is as long."""


def room(full: Study) -> int:
    """The most tokens of a sequence, by the shortest table that positions look rows up in; 0 if there is none.

    A table is one whose rows are asked for in order, and whose end the forward runs over: who clamps positions, or
    puts them into buckets, does not.
    """
    ends: dict[int, set[str]] = {}
    for path, last in _tables(full.recording):
        ends.setdefault(last, set()).add(path)
    return next((last - full.first_position for last in sorted(ends) if _ends(full, ends[last], last)), 0)


def _tables(recording: Recording) -> Iterator[tuple[str, int]]:
    """Where rows of a weight or buffer are looked up in order: the module, and the first position without a row."""
    for path, call in recording.calls.items():
        for table, index in _looked_up(call.graph):
            last = int(value_of(table).shape[0]) - int(index[0])
            if torch.equal(index, torch.arange(TOKENS) + index[0]) and TOKENS <= last <= MOST:
                yield path, last


def _looked_up(graph: fx.Graph) -> Iterator[tuple[fx.Node, torch.Tensor]]:
    """Tables that a forward looks rows up in, and the numbers of the rows, where these depend on no weights."""
    for node in graph.nodes:
        given = [one for one in node.args if isinstance(one, (fx.Node, tuple))][:2]
        if len(given) < 2:
            continue
        match function_name(node):
            case "embedding":
                index, table = given
            case "index_select" | "__getitem__" | "getitem":
                table, index = given
                index = index[0] if isinstance(index, tuple) and len(index) == 1 else index
            case _:
                continue
        if isinstance(table, fx.Node) and isinstance(index, fx.Node) and table.op == "get_attr":
            numbers = index.meta.get("shadow")
            if isinstance(numbers, torch.Tensor) and numbers.dtype in (torch.int64, torch.int32) and numbers.numel():
                yield table, numbers.flatten().long()


def _ends(full: Study, paths: Collection[str], last: int) -> bool:
    """Whether a token at position ``last`` asks one of the modules for a row that is not there.

    Who is given positions is given late ones; who counts them is given a row as long.
    """
    return _beyond(full, paths, last - TOKENS + 1, TOKENS) or _beyond(full, paths, 0, last + 1)


def _beyond(full: Study, paths: Collection[str], start: int, tokens: int) -> bool:
    try:
        calls = recorded_again(full, start, tokens).calls
    except AUTHOR_ERRORS:
        return True
    graphs = (calls[path].graph for path in paths if path in calls)
    return any(int(index.max()) >= value_of(table).shape[0] for one in graphs for table, index in _looked_up(one))
