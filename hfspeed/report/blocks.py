"""The model as blocks: each distinct module once, with what becomes of everything in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from hfspeed.plan import Attention, Head, History, Keep, Local, Op, Plan, Recurrence, Share, lines, paths
from hfspeed.plan.laws import fused

Group = Literal["kernel", "layer", "written"]
GROUPS: dict[Group, tuple[str, str]] = {
    "kernel": ("one kernel", "several of the author's operations, done by one kernel of vLLM's or of hfspeed's"),
    "layer": ("vLLM's layer", "one operation of the author's, done by vLLM's layer, split over ranks if it can be"),
    "written": ("as written", "stays as its author wrote it, whole on every rank"),
}
"""What can become of an operation: in short, and in a sentence."""


WORDS = {
    "embed": "the token table, split over its rows",
    "head": "the output projection, split over its rows",
    "positions": "rows that follow from positions alone, kept in a table",
    "attention": "causal attention, by vLLM’s kernel and cache",
    "heads": "query, key and value projections as one product, split by heads",
    "stacked": "several projections of one input, or a packed one, as one product",
    "gated": "the activation of one half times the other half, in one kernel",
    "norm": "a root-mean-square norm; its weight is none, w (plain) or 1 + w (one_plus)",
    "rotary": "query and key turned by position, in one kernel",
    "experts": "each token through the experts that its router chooses, in one kernel",
    "recurrence": "a state for each sequence, which every token updates",
    "history": "run on all tokens of a sequence at every step, because how it mixes them is not known",
    "column": "a projection whose outputs are split over ranks",
    "row": "a projection whose inputs are split over ranks; the results are added up",
    "whole": "a projection that every rank has in full",
    "keep": "a module with parameters that stays as it is written",
    "share": "a tensor of which every rank holds its own part",
    "local": "a number that counts things which are split",
}
"""What the kinds of ops are, in a sentence each."""


@dataclass(frozen=True)
class Line:
    """One op of a block: its name there, its kind, what it is in words, and what one rank holds of it."""

    name: str
    kind: str
    what: str
    group: Group
    placed: str


@dataclass(frozen=True)
class Block:
    """A module, or several that are alike.

    Attributes:
        path: the paths, numbers in brackets.
        title: the part of it that is not the list of layers.
        layers: which layers; empty outside of them.
        rewritten: it has a new forward.
        lines: what is in it.
        last: it comes behind the layers.
    """

    path: str
    title: str
    layers: str
    rewritten: bool
    lines: tuple[Line, ...]
    last: bool = False


def blocks(plan: Plan, ranks: int = 1) -> list[Block]:
    """Every distinct block, in module order; those of the decoder layers stand together."""
    by_path: dict[str, list[Op]] = {}
    for op in plan.ops:
        by_path.setdefault(lines.where(op)[0], []).append(op)
    rewritten = {path for forward in plan.forwards for path in forward.paths}
    for path in rewritten - by_path.keys():
        by_path[path] = []
    alike: dict[tuple[str, bool, bool, tuple[Line, ...]], list[str]] = {}
    for path, ops in by_path.items():
        ends = [False, True] if len({_last(op, plan) for op in ops}) > 1 else [any(_last(op, plan) for op in ops)]
        for last in ends:  # what holds the layers is told before and behind them
            told = tuple(_line(op, ranks) for op in ops if _last(op, plan) == last)
            alike.setdefault((paths.shape(path), path in rewritten, last, told), []).append(path)
    found = []
    for (_, new, last, told), same in alike.items():
        for pattern in paths.merge(same):
            title, layers = _named(pattern, plan)
            found.append(Block(pattern, title, layers, new, told, last))
    return found


def _last(op: Op, plan: Plan) -> bool:
    """Whether an op stands behind the layers."""
    stages = plan.stages
    if stages is None or op.path.startswith(f"{stages.layers}."):
        return False
    return isinstance(op, Head) or bool({op.path, *paths.outer(op.path)} & set(stages.last))


def group(op: Op) -> Group:
    """What became of an op."""
    if fused(op) or isinstance(op, Attention | Recurrence):
        return "kernel"
    return "written" if isinstance(op, Keep | Local | History | Share) else "layer"


def kinds(found: Iterable[Block]) -> dict[str, str]:
    """The kinds that occur, with what they are."""
    there = {line.kind for block in found for line in block.lines}
    return {kind: words for kind, words in WORDS.items() if kind in there}


def counted(found: Iterable[Block]) -> dict[Group, int]:
    """How many distinct lines of each group there are."""
    every = [line.group for block in found for line in block.lines]
    return {name: every.count(name) for name in GROUPS}


def _line(op: Op, ranks: int) -> Line:
    name = lines.where(op)[1]
    placed = lines.placement(op, ranks) if ranks > 1 else ""
    placed = "" if placed == "all of it" else placed
    return Line(name, type(op).__name__.lower(), lines.words(op), group(op), placed)


def _named(pattern: str, plan: Plan) -> tuple[str, str]:
    """A block's own name, and which layers it is in."""
    if plan.stages is None or not pattern.startswith(f"{plan.stages.layers}."):
        return pattern or plan.architecture, ""
    number, _, inner = pattern[len(plan.stages.layers) + 1 :].partition(".")
    return inner or "each layer", number.strip("[]").replace("-", "–")
