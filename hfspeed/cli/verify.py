"""``hfspeed verify``: the author's forward against what is served, on simulated ranks and stages, number by number."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hfspeed.cli.layout import impossible, possible
from hfspeed.errors import RefusedError, UsageError
from hfspeed.refusal import Reason

if TYPE_CHECKING:
    from hfspeed.plan import Plan, Proof
    from hfspeed.planner.mismatch import Mismatch

DTYPES = ("float64", "float32", "bfloat16", "float16")


def verify(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A local folder or the name of a model.")],
    tp: Annotated[
        str | None, typer.Option("--tp", metavar="N,…", help="Numbers of ranks; 1,2 where the model can be split.")
    ] = None,
    pp: Annotated[
        str | None, typer.Option("--pp", metavar="N,…", help="Numbers of stages; 1,2 where the model can be cut.")
    ] = None,
    ep: Annotated[
        str | None, typer.Option("--ep", metavar="N,…", help="Numbers of ranks that hold whole experts.")
    ] = None,
    dtype: Annotated[str, typer.Option("--dtype", metavar="TYPE,…", help="What to compute in.")] = "float64",
    train: Annotated[
        bool, typer.Option("--train", help="Also run plans of transformers' styles, forward and backward.")
    ] = False,
    mutants: Annotated[
        bool, typer.Option("--mutants", help="As --train, and also run wrong plans, each of which must be caught.")
    ] = False,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run Python code that comes with the model.")
    ] = False,
) -> None:
    """Prove that what hfspeed makes of a model computes the same numbers.

    A small model of the same shape, with random weights, is run by its author's code and as it is served: prompts
    packed side by side, continued token by token, on simulated ranks and stages. Exits with 1 at the first difference,
    and where a size was asked for that the model's own sizes rule out.
    """
    ranks, stages, dtypes = _numbers(tp, "--tp"), _numbers(pp, "--pp"), _dtypes(dtype)
    spread = _numbers(ep, "--ep") or []
    from rich.console import Console

    from hfspeed.planner.decide import first_plan, small_plan
    from hfspeed.planner.load import load
    from hfspeed.planner.mismatch import Mismatch

    try:
        with Console(stderr=True).status(f"planning {model}, shrunken"):
            subject = load(model, trust_remote_code=trust_remote_code)
            out = _ruled_out(first_plan(subject), ranks or [1], stages or [1], spread)
            plan, small = small_plan(subject, **_most(ranks or [1], stages or [1], out))
        spread = [count for count in spread if count not in out]
        for count in spread:
            possible(plan, ranks=1, stages=1, spread=count)
        _proofs(plan, small.fresh, dtypes, _cases(plan, ranks, stages, out), spread)
        fine = not mutants or _caught(plan, small)
        if train or mutants:
            from hfspeed.cli.trained import trained

            trained(subject, mutants=mutants, tp=ranks or [], pp=stages or [], ep=_numbers(ep, "--ep") or [])
        if out or not fine:
            raise typer.Exit(1)
    except Mismatch as error:
        _unequal(model, error)
    except RefusedError as error:
        differ = [one for one in error.refusals if one.reason in {Reason.NUMBERS_DIFFER, Reason.WRAPPER_NOT_ROWWISE}]
        if not differ:
            raise
        print(f"unequal: {differ[0]}")
        raise typer.Exit(1) from error


def _numbers(text: str | None, flag: str) -> list[int] | None:
    if text is None:
        return None
    pieces = [piece.strip() for piece in text.split(",")]
    if not all(piece.isdigit() and int(piece) > 0 for piece in pieces):
        raise UsageError(f"{flag} takes numbers from 1 on, separated by commas, for example 1,2,4; found {text!r}")
    return sorted({int(piece) for piece in pieces})


def _dtypes(text: str) -> list[str]:
    pieces = [piece.strip() for piece in text.split(",")]
    if strange := [piece for piece in pieces if piece not in DTYPES]:
        raise UsageError(f"--dtype takes {', '.join(DTYPES)}, separated by commas; found {strange[0]!r}")
    return list(dict.fromkeys(pieces))


def _ruled_out(first: Plan, ranks: list[int], stages: list[int], spread: list[int]) -> set[tuple[int, int] | int]:
    """The layouts that the large model's sizes rule out; each size is told once, with the first of its reasons."""
    why = {("rank", n): impossible(first, ranks=n) for n in ranks}
    why |= {("stage", n): impossible(first, stages=n) for n in stages}
    why |= {("rank of whole experts", n): impossible(first, spread=n) for n in spread}
    for (name, count), found in why.items():
        if found:
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            print(f"impossible: {_many(count, name)}: {found[0]}{more}")
    out = {(n, m) for n, m in product(ranks, stages) if why["rank", n] or why["stage", m]}
    return {*out, *(n for n in spread if why["rank of whole experts", n])}


def _most(ranks: list[int], stages: list[int], out: set[tuple[int, int] | int]) -> dict[str, int]:
    """For how many ranks and stages the small model has to have heads and layers enough."""
    able = [case for case in product(ranks, stages) if case not in out]
    return {"ranks": max([2, *(n for n, _ in able)]), "stages": max([2, *(n for _, n in able)])}


def _cases(
    plan: Plan, ranks: list[int] | None, stages: list[int] | None, out: set[tuple[int, int] | int]
) -> list[tuple[int, int]]:
    """The layouts to run: those asked for, which must be possible, or one and two of what can be."""
    counts = ranks or ([1, 2] if plan.tensor else [1])
    cuts = stages or ([1, 2] if plan.stages is not None and plan.stages.count > 1 else [1])
    cases = [case for case in product(counts, cuts) if not {case, (case[0], 1)} & out]
    for count, cut in cases:
        possible(plan, ranks=count, stages=cut)
    return cases


def _proofs(plan: Plan, model: Any, dtypes: list[str], cases: list[tuple[int, int]], spread: list[int]) -> None:
    """Prove every layout in every type, and print each as it is done."""
    from rich.console import Console

    progress = Console(stderr=True)
    for kind, (count, cut) in product(dtypes, cases):
        with progress.status(f"{kind}, {count} ranks, {cut} stages"):
            proofs = _proven(plan, model, count, cut, kind)
        print(_equal(proofs, count, cut, kind))
    for kind, count in product(dtypes, spread):
        with progress.status(f"{kind}, {count} ranks of whole experts"):
            proofs = _proven(plan, model, count, 1, kind, spread=True)
        print(_equal(proofs, count, 1, kind, spread=True))


def _caught(plan: Plan, small: Any) -> bool:
    """Run wrong versions of the plan that was just proven; whether all of them were caught."""
    from rich.console import Console

    from hfspeed.planner.own_mutants import survivors

    with Console(stderr=True).status("running wrong versions of our own plan"):
        count, alive = survivors(plan, small.fresh)
    print(f"wrong plans caught, of what is served: {count - len(alive)} of {count}")
    for mutant in alive:
        print(f"  not caught: {mutant.what}")
    return not alive


def _proven(plan: Plan, model: Any, count: int, cut: int, kind: str, *, spread: bool = False) -> list[Proof]:
    import torch

    from hfspeed.emit import emitted
    from hfspeed.planner.prove import prove

    return prove(plan, model, emitted(plan), ranks=(count,), stages=(cut,), dtype=getattr(torch, kind), spread=spread)


def _equal(proofs: list[Proof], count: int, cut: int, kind: str, *, spread: bool = False) -> str:
    worst = {proof.claim: proof for proof in proofs}
    hidden, logits = worst["hidden states"], worst["logits"]
    ranks = _many(count, "rank") + " of whole experts" * spread
    return (
        f"equal: {kind}, {ranks}, {_many(cut, 'stage')}: hidden states within {hidden.error:.1e}, "
        f"logits within {logits.error:.1e}, allowed {logits.bound:.0e}"
    )


def _many(count: int, name: str) -> str:
    return f"{count} {name if count == 1 else name.replace('rank', 'ranks').replace('stage', 'stages')}"


def _unequal(model: str, error: Mismatch) -> None:
    for line in _told(model, error):
        print(line)
    raise typer.Exit(1) from error


def _told(model: str, error: Mismatch) -> Iterator[str]:
    refusal = error.refusal
    yield f"unequal: {model} with {error.how}"
    yield f"  first at {refusal.module or 'the end'}: {refusal.found} ({refusal.reason})"
    if refusal.place:
        yield f"  {refusal.place}"
