"""Who holds what, as a table for people and as plain values for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from hfspeed.plan import paths
from hfspeed.plan.holdings import Holding, Holdings
from hfspeed.plan.sizes import Sizes
from hfspeed.plan.traffic import Sent

FEW = 12
"""Possible sizes that are told one by one."""
PREFIXES = ("B", "KiB", "MiB", "GiB", "TiB")


def rendered(held: Holdings, axes: Iterable[Sizes], *, disk: int = 0, lost: int = 0) -> str:
    """The sections ``holds``, ``sends`` and ``possible``; ends with a newline."""
    sections = [
        [f"holds, served as {held.dtype}:", *_table(held, HOLDS), *notes(held, disk, lost)],
        ["sends for each token:", *sent] if (sent := _table(held, SENDS)) else [],
        ["possible:", *(line for one in axes for line in _axis(one))],
    ]
    return "\n\n".join("\n  ".join(lines) for lines in sections if lines) + "\n"


def as_data(held: Holdings, axes: Iterable[Sizes], *, disk: int = 0) -> dict[str, Any]:
    """The same as plain values; bytes and numbers, no units."""
    return {
        "ranks": held.layout.ranks,
        "stages": held.layout.stages,
        "spread": held.layout.spread,
        "dtype": held.dtype,
        "parameters": held.parameters,
        "disk_bytes": disk,
        "balance": held.balance(),
        "pace": held.pace(),
        "held": [
            asdict(one) | {"weights": dict(one.weights), "windowed": dict(one.windowed), "kinds": dict(one.kinds)}
            | {"bytes": one.bytes}
            for one in held.held
        ],
        "possible": {one.flag.lstrip("-"): {"able": one.able, "limit": one.limit, "why": one.why} for one in axes},
    }


def size(count: float) -> str:
    """Bytes in words: ``1.50 GiB``."""
    number, unit = count, 0
    while number >= 1024 and unit < len(PREFIXES) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:.0f} B" if not unit else f"{number:.2f} {PREFIXES[unit]}"


def many(count: float) -> str:
    """A number of parameters in words: ``1.24 B``."""
    for unit, factor in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= factor:
            return f"{count / factor:.2f} {unit}"
    return f"{count:.0f}"


Column = tuple[str, Callable[[Holding], str]]


def _span(start: int, stop: int) -> str:
    return str(start) if stop - start == 1 else f"{start}-{stop - 1}" if stop > start else "none"


def _sent(sent: Sent) -> str:
    return f"{sent.calls} x {size(sent.bytes / sent.calls)}" if sent.calls else ""


def _bytes(count: int) -> str:
    return size(count) if count else ""


def _windowed(one: Holding) -> str:
    return ", ".join(f"{size(count)} in {window}" for window, count in one.windowed)


HOLDS: tuple[Column, ...] = (
    ("stage", lambda one: str(one.stage)),
    ("ranks", lambda one: _span(*one.ranks)),
    ("layers", lambda one: _span(*one.layers)),
    ("parameters", lambda one: many(one.parameters)),
    ("weights", lambda one: size(one.bytes)),
    ("read by a token", lambda one: size(one.reads)),
    ("cache of a token", lambda one: _bytes(one.cache)),
    ("of it in windows", _windowed),
    ("state of a sequence", lambda one: _bytes(one.state)),
    ("and for each token it may have", lambda one: _bytes(one.history)),
)
SENDS: tuple[Column, ...] = (
    ("stage", lambda one: str(one.stage)),
    ("all-reduce", lambda one: _sent(one.traffic.reduce)),
    ("all-gather", lambda one: _sent(one.traffic.gather)),
    ("all-to-all, at most", lambda one: _sent(one.traffic.exchange)),
    ("logits, all-gather", lambda one: _sent(one.traffic.logits)),
    ("to the next stage", lambda one: _sent(one.traffic.hand_on)),
)
WHERE = {"stage", "ranks", "layers"}
"""Columns that say where, not what."""


def told(held: Holdings, columns: tuple[Column, ...]) -> list[list[str]]:
    """A table, its head first; columns in which nothing stands are left out, and a table of nothing is empty."""
    rows = list(dict.fromkeys(tuple(tell(one) for _, tell in columns) for one in held.held))
    used = [at for at in range(len(columns)) if any(row[at] for row in rows)]
    if {columns[at][0] for at in used} <= WHERE:
        return []
    return [[columns[at][0] for at in used], *([row[at] or "-" for at in used] for row in rows)]


def _table(held: Holdings, columns: tuple[Column, ...]) -> list[str]:
    rows = told(held, columns)
    wide = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))] if rows else []
    return ["  ".join(f"{entry:<{width}}" for entry, width in zip(row, wide, strict=True)).rstrip() for row in rows]


def notes(held: Holdings, disk: int = 0, lost: int = 0) -> list[str]:
    """What a table of holdings does not say."""
    first = held.held[0]
    kinds = ", ".join(f"{size(count)} {kind}" for kind, count in first.weights) if len(first.weights) > 1 else ""
    on_disk = f", {size(disk)} on disk" if disk else ""
    notes = [f"the whole model has {many(held.parameters)} parameters{on_disk}"]
    if kinds:
        notes.append(f"weights of rank 0 of stage 0 are {kinds}")
    if lost:
        notes.append(f"{lost} tensors on disk belong to nothing in the model and are not counted")
    if held.layout.stages > 1:
        notes.append(
            f"the heaviest stage holds {held.balance():.2f} times the mean, "
            f"and the slowest reads {held.pace():.2f} times the mean for a token"
        )
    if held.layout.replicas > 1:
        notes.append(f"everything but experts is held {held.layout.replicas} times over (data parallel)")
    return notes


def able(one: Sizes) -> str:
    """The possible numbers of an axis."""
    return ", ".join(map(str, one.able)) if len(one.able) <= FEW else paths.ranges(one.able)


def _axis(one: Sizes) -> list[str]:
    more = f" (up to {one.limit} looked at)" if one.flag == "--tp" else ""
    return [f"{one.flag} {able(one)}{more}", *(f"  {line}" for line in one.why)]
