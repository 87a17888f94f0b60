"""An author's own guarantee: a model keeps what it was served with, and a failed assertion says which line lost it."""

from __future__ import annotations

import difflib
import inspect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hfspeed.errors import HfspeedError, RefusedError, UsageError
from hfspeed.plan import Experts, Plan, laws
from hfspeed.plan.holdings_text import able
from hfspeed.plan.lines import KINDS
from hfspeed.plan.sizes import sizes
from hfspeed.plan.text import refused
from hfspeed.refusal import Place, Refusal

WANTED: Mapping[str, frozenset[str]] = {
    "heads": frozenset({"heads", "packed_heads", "siblings"}),
    "gated": frozenset({"gated", "packed_gated"}),
    "stacked": frozenset({"siblings", "packed_gated"}),
    "norm": frozenset({"rms_norm", "norm"}),
}
"""What a refusal says was wanted, for kinds of ops that several fusions make; the others are called as their op."""
ANY = frozenset({"fusion", "proof", "rewrite", "emit"})
"""Refusals of whatever a module would have had."""


class Lost(AssertionError):  # noqa: N818  it is what happened
    """The model is not served as it was asked for; the message has one entry for each line that is to blame.

    Attributes:
        refusals: what was refused, with places.
    """

    def __init__(self, message: str, refusals: tuple[Refusal, ...] = ()) -> None:
        self.refusals = refusals
        super().__init__(message)


def check_model(
    model: str | Path | Any,
    *,
    model_class: type[Any] | None = None,
    fused: Iterable[str] | Mapping[str, int] = (),
    tp: Iterable[int] | int = (),
    pp: Iterable[int] | int = (),
    ep: Iterable[int] | int = (),
    strict: bool = False,
    trust_remote_code: bool = False,
) -> Plan:
    """Plan and prove a model, and assert what its author relies on.

    Args:
        model: a folder with ``config.json``, a modeling file, a model type, or a configuration object.
        model_class: the ``ForCausalLM`` of a configuration object, where transformers does not know which it is.
        fused: kinds of ops that the plan must have, as `hfspeed plan` calls them (``"heads"``, ``"gated"``, ``"norm"``,
            …), with nothing of that kind refused; with numbers, at least so many of each.
        tp: numbers of ranks over which it must be possible to split the model.
        pp: numbers of stages into which it must be possible to cut it.
        ep: numbers of ranks over which it must be possible to spread whole experts.
        strict: nothing at all may be refused.
        trust_remote_code: run Python code that comes with the model.

    Returns:
        The proven plan, for further assertions.

    Raises:
        Lost: the model is refused, or something asked for is not so; names file and line.
        UsageError: the question itself is wrong: no such model, no such kind.
    """
    __tracebackhide__ = True
    wanted = _wanted(fused)
    subject = _subject(model, model_class, trust_remote_code)
    from hfspeed.planner.serve import planned

    try:
        plan, _ = planned(subject)
    except RefusedError as error:
        raise Lost(_message(subject.name, "cannot be served correctly", error.refusals), error.refusals) from None
    lost = [*_kinds(plan, wanted), *_layouts(plan, _numbers(tp), _numbers(pp), _numbers(ep))]
    if strict and plan.refusals:
        lost.append(("nothing may be refused", plan.refusals))
    if lost:
        every = tuple(dict.fromkeys(refusal for _, refusals in lost for refusal in refusals))
        raise Lost("\n".join(_message(subject.name, why, refusals) for why, refusals in lost), every)
    _prove(subject, plan, _numbers(tp), _numbers(pp), _numbers(ep))
    return plan


Loss = tuple[str, tuple[Refusal, ...]]


def _kinds(plan: Plan, wanted: Mapping[str, int]) -> Iterator[Loss]:
    has = Counter(type(op).__name__.lower() for op in plan.ops)
    for kind, count in wanted.items():
        names = WANTED.get(kind, frozenset({kind})) | ANY
        refusals = tuple(one for one in plan.refusals if one.wanted in names)
        if has[kind] < count:
            there = ", ".join(f"{number} {name}" for name, number in sorted(has.items()))
            yield f"has {has[kind]} `{kind}`, expected {count} or more; there are {there}", refusals
        elif refusals:
            yield f"does not have `{kind}` everywhere", refusals


def _layouts(plan: Plan, tp: list[int], pp: list[int], ep: list[int]) -> Iterator[Loss]:
    for ranks in tp:
        if [*laws.division(plan, ranks)]:
            axis = sizes(plan)[0]
            yield _told(f"cannot be split over {ranks} ranks, only over {able(axis)}", plan, axis.why, "tensor")
    for stages in pp:
        if broken := laws.once(laws.partition(plan, stages)):
            yield _told(f"cannot be cut into {stages} stages", plan, broken, "stages", "pipeline")
    counts = [op.count for op in plan.ops if isinstance(op, Experts)]
    for spread in ep:
        if spread > 1 and not counts:
            yield _told(f"has no experts that could be spread over {spread} ranks", plan, (), "experts")
        elif counts and spread > min(counts):
            yield _told(f"has layers with {min(counts)} experts, too few for {spread} ranks", plan, (), "experts")


def _told(what: str, plan: Plan, broken: Iterable[str], *wanted: str) -> Loss:
    refusals = tuple(one for one in plan.refusals if one.wanted in wanted)
    told = "; ".join(broken)
    return (f"{what}: {told}" if told and not refusals else what), refusals


def _message(name: str, why: str, refusals: Iterable[Refusal]) -> str:
    """What was lost, and below it each place once, as editors and terminals make links of."""
    return "\n".join([f"{name} {why}", *(f"  {line}" for line in refused(map(_near, refusals)))])


def _near(refusal: Refusal) -> Refusal:
    """The same with the linter's remedy, and its file told from the current folder where it lies below."""
    from hfspeed.lint.rule import lent
    from hfspeed.lint.rules import by_reason

    place, rule = refusal.place, by_reason()[refusal.reason]
    finding = lent(rule, refusal, place or Place("", 1), fatal=False)
    remedy = f"{finding.help} (hfspeed rule {rule.code})" if finding.help else f"hfspeed rule {rule.code}"
    if place is not None and Path(place.file).is_relative_to(Path.cwd()):
        place = replace(place, file=str(Path(place.file).relative_to(Path.cwd())))
    return replace(refusal, place=place, help=remedy)


def _prove(subject: Any, plan: Plan, tp: list[int], pp: list[int], ep: list[int]) -> None:
    """Prove layouts that planning did not: on a small model of the same shape, as far as that can be laid out so."""
    more = [(ranks, 1, False) for ranks in tp if ranks > 2]
    more += [(1, stages, False) for stages in pp if stages > 2]
    more += [(spread, 1, True) for spread in ep if spread > 1]
    if not more:
        return
    from hfspeed.emit import emitted
    from hfspeed.planner.decide import small_plan
    from hfspeed.planner.mismatch import Mismatch
    from hfspeed.planner.prove import prove

    small, study = small_plan(subject)
    fewest = min((op.count for op in small.ops if isinstance(op, Experts)), default=1)
    for ranks, stages, spread in more:
        divides = ranks <= fewest if spread else not [*laws.division(small, ranks)]
        if not divides or [*laws.partition(small, stages)]:
            continue
        try:
            prove(small, study.fresh, emitted(small), ranks=(ranks,), stages=(stages,), spread=spread)
        except Mismatch as error:
            told = (error.refusal,)
            raise Lost(_message(plan.architecture, f"computes other numbers with {error.how}", told), told) from None


def _wanted(fused: Iterable[str] | Mapping[str, int]) -> dict[str, int]:
    kinds = [fused] if isinstance(fused, str) else fused
    asked = dict(kinds) if isinstance(kinds, Mapping) else dict.fromkeys(kinds, 1)
    for kind in asked:
        if kind not in KINDS:
            near = difflib.get_close_matches(kind, KINDS, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"fused={kind!r}: expected kinds of ops, of {', '.join(sorted(KINDS))}{hint}")
    return asked


def _numbers(asked: Iterable[int] | int) -> list[int]:
    numbers = [asked] if isinstance(asked, int) else list(asked)
    if any(one < 1 for one in numbers):
        raise UsageError(f"numbers of ranks and stages count from 1, found {numbers}")
    return numbers


def _subject(model: Any, model_class: type[Any] | None, trust_remote_code: bool) -> Any:
    from hfspeed.planner.load import Subject, load, model_class_of

    if isinstance(model, str | Path):
        try:
            return load(str(model), trust_remote_code=trust_remote_code)
        except UsageError as error:  # said for the command line
            raise UsageError(str(error).replace("--trust-remote-code", "trust_remote_code=True")) from error
    if not hasattr(model, "model_type"):
        raise UsageError(f"expected a folder, a modeling file, a model type or a configuration, found {model!r}")
    try:
        cls = model_class or model_class_of(model)
    except HfspeedError as error:
        raise UsageError(f"{error}; or pass it as model_class") from error
    return Subject(cls.__name__, None, model, cls, Path(inspect.getfile(cls)))
