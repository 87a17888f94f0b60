"""The picture for a README: what a model is served with, at a glance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hfspeed.plan.holdings_text import many, size
from hfspeed.report.blocks import Block, Group, blocks
from hfspeed.report.memory import PARTS, Bar, bars, shown
from hfspeed.report.page import Subject, environment

WIDTH, EDGE, TOP, LETTER = 760, 20, 130, 7.1
"""Of the picture; the height of what stands above the boxes; and about how wide a letter is."""
MOST = 14
"""Boxes and bars of each kind; more are counted, not drawn."""
LEFT = 180
"""Where bars begin."""


@dataclass(frozen=True)
class Chip:
    """One kind of op in a box."""

    name: str
    group: Group
    x: float
    y: float
    width: float


@dataclass(frozen=True)
class Box:
    """A block of the model, or several that hold the same kinds of ops."""

    name: str
    x: float
    y: float
    width: float
    height: float
    chips: tuple[Chip, ...]


@dataclass(frozen=True)
class Word:
    """One entry of the key."""

    part: str
    words: str
    x: float
    y: float


def card(subject: Subject) -> str:
    """The picture as SVG; it stands on light and on dark ground, and everything in it is escaped."""
    plan, held = subject.plan, subject.held
    made = sorted((one for one in blocks(plan) if one.lines), key=lambda one: (one.last, bool(one.layers)))
    boxes = list(_boxes(made[:MOST]))
    low = max((box.y + box.height for box in boxes), default=TOP)
    drawn = bars(held)[:MOST]
    lines = [_bar(bar, low + 22 + 26 * at) for at, bar in enumerate(drawn)]
    foot = low + 22 + 26 * len(drawn)
    key = _key(drawn, foot + 6)
    title = plan.architecture
    layers = f"{plan.stages.count} layers, " if plan.stages else ""
    line = f"{layers}{len(plan.forwards)} methods rewritten, {len(plan.proofs)} proofs; served by vLLM through hfspeed"
    tiles = _tiles(subject)
    spoken = f"{title}: {line}. " + ", ".join(f"{name} {value}" for name, value in tiles)
    return environment().get_template("card.svg.j2").render(
        width=WIDTH,
        height=foot + 10 if not key else key[-1].y + 24,
        spoken=spoken,
        title=title,
        line=line,
        tiles=tiles,
        tile=(WIDTH - 2 * EDGE) / max(1, len(tiles)),
        boxes=boxes,
        bars=lines,
        key=key,
    )  # fmt: skip


def _tiles(subject: Subject) -> list[tuple[str, str]]:
    first = subject.held.held[0]
    worst = max((proof.error for proof in subject.plan.proofs), default=0.0)
    tiles = [("parameters", many(subject.held.parameters)), ("weights of a rank", size(first.bytes))]
    if first.cache:
        tiles.append(("cache of a token", size(first.cache)))
    if first.state:
        tiles.append(("state of a sequence", size(first.state)))
    return [*tiles, ("largest difference", f"{worst:.0e}" if worst else "none")][:5]


def _boxes(found: list[Block]) -> Iterator[Box]:
    """A box for each block, in rows; a box is as wide as its chips ask for, and a row is filled."""
    rows: list[list[tuple[str, list[tuple[str, Group]]]]] = [[]]
    used = 0.0
    for block in found:
        kinds = list(dict.fromkeys((line.kind, line.group) for line in block.lines))
        name = block.title + (f"  ×{_count(block.layers)}" if block.layers else "")
        wide = _wide(name, kinds)
        if rows[-1] and used + wide > WIDTH - 2 * EDGE:
            rows.append([])
            used = 0.0
        rows[-1].append((name, kinds))
        used += wide + 10
    y = float(TOP)
    for row in rows:
        x, height = float(EDGE), 0.0
        stretch = (WIDTH - 2 * EDGE - 10 * (len(row) - 1)) / (sum(_wide(*one) for one in row) or 1)
        for name, kinds in row:
            wide = _wide(name, kinds) * stretch
            chips = tuple(_chips(kinds, x + 10, y + 30, wide - 20))
            tall = (max(chip.y for chip in chips) + 32 - y) if chips else 40
            height = max(height, tall)
            yield Box(name, round(x, 1), round(y, 1), round(wide, 1), round(tall, 1), chips)
            x += wide + 10
        y += height + 10


def _wide(name: str, kinds: list[tuple[str, Group]]) -> float:
    chips = sum(len(kind) * LETTER + 22 for kind, _ in kinds)
    return min(WIDTH - 2 * EDGE, max(len(name) * (LETTER + 0.6) + 24, min(chips + 16, 340)))


def _chips(kinds: list[tuple[str, Group]], x: float, y: float, room: float) -> Iterator[Chip]:
    at, row = 0.0, 0
    for kind, group in kinds:
        wide = len(kind) * LETTER + 14
        if at and at + wide > room:
            at, row = 0.0, row + 1
        yield Chip(kind, group, round(x + at, 1), round(y + 28 * row, 1), round(wide, 1))
        at += wide + 8


def _count(layers: str) -> int:
    """How many layers ``0–31``, ``0–24/2`` or ``3,7`` are."""
    count = 0
    for piece in layers.split(","):
        span, _, step = piece.partition("/")
        start, _, stop = span.partition("–")
        count += (int(stop or start) - int(start)) // int(step or 1) + 1
    return count


def _bar(bar: Bar, y: float) -> dict[str, object]:
    room = (WIDTH - EDGE - 100 - LEFT) / 100
    segments = [
        {"part": one.part, "x": round(LEFT + one.start * room, 1), "width": round(one.length * room, 1)}
        for one in bar.segments
    ]
    return {"name": bar.name, "y": y, "segments": segments, "much": size(bar.held.bytes)}


def _key(drawn: list[Bar], y: float) -> list[Word]:
    found: list[Word] = []
    x = float(EDGE)
    for part in shown(drawn):
        words = PARTS[part][0]
        wide = len(words) * LETTER + 34
        if x > EDGE and x + wide > WIDTH - EDGE:
            x, y = float(EDGE), y + 20
        found.append(Word(part, words, round(x, 1), y))
        x += wide
    return found
