"""The plans that a configuration declares, held against the model: each finding with its module and its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hfspeed.plan.styles import KINDS, StylePlans, attribute, under
from hfspeed.planner.declared import unmatched
from hfspeed.planner.declared_sizes import causes, declared_sizes, parts
from hfspeed.planner.looked import Looked, config_of, declared_plans
from hfspeed.planner.plan_forms import odd_entries, where_said
from hfspeed.planner.stretches import Stretch
from hfspeed.planner.styled import Derived, staged_outcome
from hfspeed.reference.styles import STYLES
from hfspeed.refusal import Reason, Refusal

WHOLE = {"replicated_with_grad_allreduce", "mla_kv_a_proj", "all_reduce", "moe_tp_experts", "moe_identity_expert"}
"""Styles that leave every rank with all of a module's own parameters."""

MOST_TRIED = 16
"""Ranks, at most, on which a plan is run that its model rules out for as few as there can be."""


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
    found = [*_odd(config), *_entries(seen, theirs), *_missing(config, theirs, derived.plans)]
    if theirs.tp:
        wrong = list(_readers(seen, theirs.tp, derived))
        out = {name for _, names in wrong for name in names}  # what is wrong at any size is told once
        right = {name: style for name, style in theirs.tp.items() if name not in out}
        found += [*(one for one, _ in wrong), *declared_sizes(seen, right, ranks, "tp")]
    if theirs.ep:
        count = seen.spread
        outcome = seen.whole.ranks(under(seen.base, theirs.ep), count, train=True)
        if not outcome.equal:
            told = f"on {count} ranks: {outcome}"
            found.append(Refusal("ep plan", Reason.NUMBERS_DIFFER, told, next(iter(theirs.ep))))
        found += declared_sizes(seen, theirs.ep, spread, "ep")
    for count in {2, *stages} if theirs.pp else ():
        outcome = staged_outcome(seen, theirs.pp, count)
        if not outcome.equal:
            found.append(
                Refusal("pp plan", Reason.NUMBERS_DIFFER, f"on {count} stages: {outcome}", next(iter(theirs.pp)))
            )
    return [one.at(one.module, where_said(config, one.wanted[:2], one.module)) for one in found]


def _odd(config: Any) -> Iterator[Refusal]:
    for kind in KINDS:
        for name, told in odd_entries(getattr(config, attribute(kind), None) or {}, kind):
            yield Refusal(f"{kind} plan", Reason.PLAN_DISAGREES, told, str(name))


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


def _missing(config: Any, theirs: StylePlans, ours: StylePlans) -> Iterator[Refusal]:
    """What every rank holds whole although it can be split; and kinds of plan that are not there at all."""
    for kind in KINDS:
        plan = ours.of(kind)
        if plan and not getattr(config, attribute(kind), None):
            told = f"there is no {attribute(kind)}, although the model allows one"
            yield Refusal(f"{kind} plan", Reason.NOT_SPLIT, told, next(iter(plan)))
            continue
        for name, style in plan.items() if kind != "pp" else ():
            if style not in WHOLE and name not in theirs.of(kind):
                yield Refusal(
                    f"{kind} plan", Reason.NOT_SPLIT, f"every rank holds `{name}` whole; {style} splits it", name
                )


def _readers(
    seen: Looked, plan: Mapping[str, str], derived: Derived
) -> Iterator[tuple[Refusal, Mapping[str, str]]]:
    """Stretches whose entries, alone, compute something else, each at the entry that is wrong; and their entries."""
    count = derived.ranks
    entries = {**seen.beside, **under(seen.base, plan)}
    whole = seen.whole.ranks(entries, count, train=True)
    if whole.equal or _right_elsewhere(seen, entries, count):
        return
    blamed = False
    for part, names in parts(seen, plan):
        outcome = seen.whole.ranks(under(seen.base, names), count, train=True)
        if not outcome.equal:
            blamed = True
            at, remedy = _culprit(seen, names, part, derived)
            told = f"{_said(part, names, seen.base)}; {outcome}{remedy}"
            yield Refusal("tp plan", Reason.MIXES_SPLIT, told, at), names
    if not blamed:
        yield Refusal("tp plan", Reason.NUMBERS_DIFFER, f"on {count} ranks: {whole}", next(iter(plan))), plan


def _right_elsewhere(seen: Looked, entries: Mapping[str, str], count: int) -> bool:
    """Whether the model's own sizes rule ``count`` ranks out, and the entries are right on a number that they allow."""
    if not any(causes(seen, count)):
        return False
    others = (other for other in range(2, MOST_TRIED + 1) if other != count and not any(causes(seen, other)))
    return any(seen.whole.ranks(entries, other, train=True).equal for other in others)


def _culprit(seen: Looked, names: Mapping[str, str], part: Stretch | None, derived: Derived) -> tuple[str, str]:
    """The one entry that has to change, as running it changed shows; else the first that the code does not give."""
    ours = derived.plans.tp
    start = len(seen.base) + 1
    stretch = {name[start:] for name in part.names} if part is not None else set()
    missing = [name for name in ours if name in stretch and name not in names]
    other = [name for name, style in names.items() if ours.get(name) != style]
    for name in (*other, *missing):
        mended = {key: style for key, style in names.items() if key != name}
        mended |= {name: ours[name]} if name in ours else {}
        if mended and seen.whole.ranks(under(seen.base, mended), derived.ranks, train=True).equal:
            right = f"with {ours[name]} for" if name in ours else "without"
            return (name if name in names else next(iter(names))), f"; {right} `{name}` it is right"
    return next(iter(other or names)), ""


def _said(stretch: Stretch | None, names: Mapping[str, str], base: str) -> str:
    if stretch is None:
        return "these entries do not go together: " + ", ".join(f"`{n}` {style}" for n, style in names.items())
    start = len(base) + 1

    def told(entries: Sequence[str]) -> str:
        return ", ".join(f"`{one[start:]}` ({names.get(one[start:], 'no entry')})" for one in entries)

    return f"what {told(stretch.columns)} gives is read by {told(stretch.rows)}"
