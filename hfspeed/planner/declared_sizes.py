"""Whether a declared plan fits so many ranks at full size, told by the numbers of heads, widths and experts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hfspeed.plan import Attention
from hfspeed.plan.sizes import ruled_out
from hfspeed.plan.styles import generic, under
from hfspeed.planner.full_size import misfit
from hfspeed.planner.looked import Looked
from hfspeed.planner.stretches import Stretch, stretches
from hfspeed.refusal import Reason, Refusal

HELD_ONLY = {"colwise_gather_output", "rowwise_split_input"}
"""Styles that share out weights alone: heads are whole on every rank, and need not divide."""


def declared_sizes(seen: Looked, plan: Mapping[str, str], sizes: Sequence[int], kind: str) -> Iterator[Refusal]:
    """One finding for each cause at each size: what does not divide, at the entry that splits it."""
    for count in (size for size in sizes if size > 1):
        left = dict(plan)
        for path, why in causes(seen, count) if kind == "tp" else ():
            names = [name for name in _below(seen, left, path) if left[name] not in HELD_ONLY]
            if names:
                yield Refusal(f"{kind} plan", Reason.DOES_NOT_DIVIDE, f"{count} ranks: {why}", names[0])
                left = {name: style for name, style in left.items() if name not in names}
        for _, entries in parts(seen, left):
            if why := misfit(seen.full, under(seen.base, entries), count, kind):
                told = f"does not fit {count} ranks: {why}"
                yield Refusal(f"{kind} plan", Reason.DOES_NOT_DIVIDE, told, next(iter(entries)))


def causes(seen: Looked, count: int) -> Iterator[tuple[str, str]]:
    """Paths of which a share for each of so many ranks is none, and why, as `hfspeed plan` tells it."""
    done = set()
    for path, why in ruled_out(seen.first, count) if seen.first.tensor else ():
        done.add(generic(path))
        yield path, why
    for op in seen.first.ops:
        at = generic(op.path)
        if isinstance(op, Attention) and op.split and op.kv_heads % count and at not in done:
            done.add(at)
            heads = f"{at}: {op.heads} heads, {op.kv_heads} key heads"
            yield op.path, f"{heads}; by transformers' styles no key head is on two ranks, so {count} must divide them"


def _below(seen: Looked, plan: Mapping[str, str], path: str) -> list[str]:
    """The entries of what stands at ``path``, or beside it in the same module, such as the parts of a packed op."""
    at = generic(path)
    full = {name: f"{seen.base}.{name}" if seen.base else name for name in plan}
    own = [name for name, one in full.items() if one == at or one.startswith(f"{at}.")]
    return own or [name for name, one in full.items() if one.rpartition(".")[0] == at.rpartition(".")[0]]


def parts(seen: Looked, plan: Mapping[str, str]) -> Iterator[tuple[Stretch | None, dict[str, str]]]:
    """The plan's entries by stretch; what is in none of them by its parent."""
    left = dict(plan)
    start = len(seen.base) + 1
    for stretch in stretches(seen.recording, seen.base):
        touched = {name[start:] for name in (*stretch.columns, *stretch.inner, *stretch.rows, *stretch.past)}
        names = {name: style for name, style in left.items() if name in touched}
        if names:
            yield stretch, names
            left = {name: style for name, style in left.items() if name not in names}
    groups: dict[str, dict[str, str]] = {}
    for name, style in left.items():
        owner = next((one for one in left if name.startswith(f"{one}.")), name)
        groups.setdefault(owner, {})[name] = style
    yield from ((None, names) for names in groups.values())
