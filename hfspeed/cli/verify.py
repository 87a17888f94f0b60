"""``hfspeed verify``: the author's forward against what is served, on simulated ranks and stages, number by number."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hfspeed.cli.layout import possible
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
        bool, typer.Option("--train", help="Also run the plans of transformers' styles, forward and backward.")
    ] = False,
    mutants: Annotated[
        bool, typer.Option("--mutants", help="With --train: also run wrong plans, each of which must be caught.")
    ] = False,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run Python code that comes with the model.")
    ] = False,
) -> None:
    """Prove that what hfspeed makes of a model computes the same numbers.

    A small model of the same shape, with random weights, is run by its author's code and as it is served: prompts
    packed side by side, continued token by token, on simulated ranks and stages. Exits with 1 at the first difference.
    """
    ranks, stages, dtypes = _numbers(tp, "--tp"), _numbers(pp, "--pp"), _dtypes(dtype)
    from rich.console import Console

    from hfspeed.planner.decide import small_plan
    from hfspeed.planner.load import load
    from hfspeed.planner.mismatch import Mismatch

    progress = Console(stderr=True)
    try:
        with progress.status(f"planning {model}, shrunken"):
            subject = load(model, trust_remote_code=trust_remote_code)
            plan, small = small_plan(subject, ranks=max(ranks or [2]), stages=max(stages or [2]))
        for count in _numbers(ep, "--ep") or []:
            possible(plan, ranks=1, stages=1, spread=count)
        for kind, (count, cut) in product(dtypes, _cases(plan, ranks, stages)):
            with progress.status(f"{kind}, {count} ranks, {cut} stages"):
                proofs = _proven(plan, small.fresh, count, cut, kind)
            print(_equal(proofs, count, cut, kind))
        for kind, count in product(dtypes, _numbers(ep, "--ep") or []):
            with progress.status(f"{kind}, {count} ranks of whole experts"):
                proofs = _proven(plan, small.fresh, count, 1, kind, spread=True)
            print(_equal(proofs, count, 1, kind, spread=True))
        if train or mutants:
            from hfspeed.cli.trained import trained

            asked = {"tp": ranks or [], "pp": stages or [], "ep": _numbers(ep, "--ep") or []}
            trained(subject, mutants=mutants, **asked)
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


def _cases(plan: Plan, ranks: list[int] | None, stages: list[int] | None) -> list[tuple[int, int]]:
    """The layouts to run: those asked for, which must be possible, or one and two of what can be."""
    counts = ranks or ([1, 2] if plan.tensor else [1])
    cuts = stages or ([1, 2] if plan.stages is not None and plan.stages.count > 1 else [1])
    for count, cut in product(counts, cuts):
        possible(plan, ranks=count, stages=cut)
    return list(product(counts, cuts))


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
    return f"{count} {name}{'' if count == 1 else 's'}"


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
