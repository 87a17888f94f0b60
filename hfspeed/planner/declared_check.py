"""The plans that a configuration declares, held against the model: each finding with its module and its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hfspeed.plan.styles import KINDS, StylePlans, attribute, under
from hfspeed.planner.declared import unmatched
from hfspeed.planner.full_size import misfit
from hfspeed.planner.looked import Looked, config_of, declared_plans
from hfspeed.planner.stretches import Stretch, stretches
from hfspeed.planner.styled import Derived, staged_outcome
from hfspeed.reference.styles import STYLES
from hfspeed.refusal import Place, Reason, Refusal
from hfspeed.source.configuration import declared, place_of

WHOLE = {"replicated_with_grad_allreduce", "mla_kv_a_proj", "all_reduce", "moe_tp_experts", "moe_identity_expert"}
"""Styles that leave every rank with all of a module's own parameters."""


def check(
    seen: Looked, derived: Derived, *, ranks: Sequence[int] = (), stages: Sequence[int] = (), spread: Sequence[int] = ()
) -> list[Refusal]:
    """Everything that is wrong with the declared plans, or missing from them.

    Args:
        seen: the model.
        derived: the plans that its code allows.
        ranks / stages / spread: sizes that somebody wants to run it at.
    """
    config = config_of(seen)
    theirs = declared_plans(config)
    found = [*_entries(seen, theirs), *_missing(theirs, derived.plans)]
    if theirs.tp:
        found += [*_readers(seen, theirs.tp), *_sizes(seen, theirs.tp, ranks, "tp")]
    if theirs.ep:
        count = seen.spread
        outcome = seen.whole.ranks(under(seen.base, theirs.ep), count, train=True)
        if not outcome.equal:
            told = f"on {count} ranks: {outcome}"
            found.append(Refusal("ep plan", Reason.NUMBERS_DIFFER, told, next(iter(theirs.ep))))
        found += _sizes(seen, theirs.ep, spread, "ep")
    for count in {2, *stages} if theirs.pp else ():
        outcome = staged_outcome(seen, theirs.pp, count)
        if not outcome.equal:
            found.append(
                Refusal("pp plan", Reason.NUMBERS_DIFFER, f"on {count} stages: {outcome}", next(iter(theirs.pp)))
            )
    return [_placed(one, type(config)) for one in found]


def _placed(one: Refusal, config_class: type[Any]) -> Refusal:
    where = declared(config_class, one.wanted[:2]) or place_of(config_class)
    return one.at(one.module, Place(str(where.file), where.at(one.module)))


def _entries(seen: Looked, theirs: StylePlans) -> Iterator[Refusal]:
    model = seen.full.model.get_submodule(seen.base)
    for kind in KINDS:
        for name in unmatched(model, theirs.of(kind)):
            told = f"`{name}` in {attribute(kind)} matches no module"
            yield Refusal(f"{kind} plan", Reason.PLAN_DISAGREES, told, name)
    for kind in ("tp", "ep"):
        for name, style in theirs.of(kind).items():
            if style not in STYLES:
                yield Refusal(f"{kind} plan", Reason.PLAN_DISAGREES, f"{style!r} is no style that is known", name)


def _missing(theirs: StylePlans, ours: StylePlans) -> Iterator[Refusal]:
    """What every rank holds whole although it can be split; and kinds of plan that are not there at all."""
    for kind in KINDS:
        plan = ours.of(kind)
        if plan and not theirs.of(kind):
            told = f"there is no {attribute(kind)}, although the model allows one"
            yield Refusal(f"{kind} plan", Reason.NOT_SPLIT, told, next(iter(plan)))
            continue
        for name, style in plan.items() if kind != "pp" else ():
            if style not in WHOLE and name not in theirs.of(kind):
                yield Refusal(
                    f"{kind} plan", Reason.NOT_SPLIT, f"every rank holds `{name}` whole; {style} splits it", name
                )


def _readers(seen: Looked, plan: Mapping[str, str]) -> Iterator[Refusal]:
    """Stretches whose entries, alone, compute something else."""
    whole = seen.whole.ranks({**seen.beside, **under(seen.base, plan)}, 2, train=True)
    if whole.equal:
        return
    blamed = False
    for part, names in _parts(seen, plan):
        outcome = seen.whole.ranks(under(seen.base, names), 2, train=True)
        if not outcome.equal:
            blamed = True
            yield Refusal(
                "tp plan", Reason.MIXES_SPLIT, f"{_said(part, names, seen.base)}; {outcome}", next(iter(names))
            )
    if not blamed:
        yield Refusal("tp plan", Reason.NUMBERS_DIFFER, f"on 2 ranks: {whole}", next(iter(plan)))


def _parts(seen: Looked, plan: Mapping[str, str]) -> Iterator[tuple[Stretch | None, dict[str, str]]]:
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


def _said(stretch: Stretch | None, names: Mapping[str, str], base: str) -> str:
    if stretch is None:
        return "these entries do not go together: " + ", ".join(f"`{n}` {style}" for n, style in names.items())
    start = len(base) + 1

    def told(entries: Sequence[str]) -> str:
        return ", ".join(f"`{one[start:]}` ({names.get(one[start:], 'no entry')})" for one in entries)

    return f"what {told(stretch.columns)} gives is read by {told(stretch.rows)}"


def _sizes(seen: Looked, plan: Mapping[str, str], sizes: Sequence[int], kind: str) -> Iterator[Refusal]:
    for count in sizes:
        for _, names in _parts(seen, plan):
            if count > 1 and (why := misfit(seen.full, under(seen.base, names), count, kind)):
                told = f"does not fit {count} ranks: {why}"
                yield Refusal(f"{kind} plan", Reason.DOES_NOT_DIVIDE, told, next(iter(names)))
