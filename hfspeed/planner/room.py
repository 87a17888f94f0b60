"""How many positions a model has rows for: beyond the end of a table of them its author's code fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch
from torch import fx

from hfspeed.graph.nodes import function_name, value_of
from hfspeed.graph.record import Recording
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.study import TOKENS, Study, again

MOST: Final = 1 << 17
"""Tables with more rows than these are not looked at: no sequence is as long."""


def room(full: Study) -> int:
    """The most tokens of a sequence, by the shortest table that positions look rows up in; 0 if there is none.

    A table is one whose rows are asked for in order, and whose end the forward runs over: who clamps positions, or
    puts them into buckets, does not.
    """
    found = [rows - first for path, first, rows in _tables(full.recording) if _ends(full, path, first, rows)]
    return min(found, default=full.first_position) - full.first_position


def _tables(recording: Recording) -> Iterator[tuple[str, int, int]]:
    """Where a weight's or buffer's rows are looked up in order: the module, the first row, and how many there are."""
    for path, call in recording.calls.items():
        for table, index in _looked_up(call.graph):
            rows, first = int(value_of(table).shape[0]), int(index[0])
            in_order = torch.equal(index, torch.arange(TOKENS) + first)
            if in_order and TOKENS <= rows - first <= MOST:
                yield path, first, rows


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
            if isinstance(numbers, torch.Tensor) and numbers.dtype in (torch.int64, torch.int32):
                yield table, numbers.flatten()


def _ends(full: Study, path: str, first: int, rows: int) -> bool:
    """Whether a token at the first position beyond the table asks for a row that is not there.

    Who is given positions is given late ones; who counts them is given a row as long.
    """
    last = rows - first
    return _beyond(full, path, last - TOKENS + 1, TOKENS) or _beyond(full, path, 0, last + 1)


def _beyond(full: Study, path: str, start: int, tokens: int) -> bool:
    try:
        call = again(full, start, tokens).calls.get(path)
    except AUTHOR_ERRORS:
        return True
    return call is not None and any(
        int(index.max()) >= value_of(table).shape[0] for table, index in _looked_up(call.graph) if index.numel()
    )
