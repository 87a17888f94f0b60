"""Proof by running: the author's small model against its plan, on ranks and stages, packed and token by token."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import nn

from hfspeed.errors import PlanError
from hfspeed.graph.tensors import tensors
from hfspeed.plan import Attention, History, Plan, Proof, laws
from hfspeed.planner.contest import Contest, moved
from hfspeed.planner.mismatch import BOUNDS, Mismatch, apart, arithmetic, many, running
from hfspeed.planner.precision import in_dtype
from hfspeed.planner.witness import Witness, calls, distance
from hfspeed.reference.build import build
from hfspeed.reference.ranks import Group, Ranks

__all__ = ["Mismatch", "prove", "prove_module"]


def prove(
    plan: Plan,
    model: nn.Module,
    classes: ModuleType | None,
    *,
    ranks: Sequence[int] = (1, 2),
    stages: Sequence[int] = (1, 2),
    dtype: torch.dtype = torch.float64,
    spread: bool = False,
) -> list[Proof]:
    """Compare the author's model with the plan, built in plain torch.

    Each prompt is run alone and whole by the author. The plan is run on every number of ranks and stages, on each
    prompt alone, then on all of them packed side by side in one row, in chunks and token by token. Hidden states and
    logits must agree for every token. Ranks or stages that the plan itself rules out are left out.

    Args:
        plan: the plan of ``model``.
        model: the author's ``ForCausalLM``, small, with random weights; not changed.
        classes: the emitted module.
        ranks: numbers of ranks.
        stages: numbers of pipeline stages.
        dtype: what is computed in. In float64, inner casts to float32 are widened too.
        spread: ranks hold whole experts, and all else whole.

    Returns:
        A proof of the whole, of each rewritten forward, and of each kind of fused op (see `laws.claim`).

    Raises:
        Mismatch: something differs.
        PlanError: the plan cannot be built on these ranks or stages although it says it can be split.
    """
    cases = [
        (count, cut)
        for count, cut in itertools.product(ranks, stages)
        if (count == 1 or plan.tensor or spread) and (cut == 1 or plan.stages is not None)
    ]
    for count, cut in cases:
        if broken := [*(() if spread else laws.division(plan, count)), *laws.partition(plan, cut)]:
            raise PlanError(f"the plan of {plan.architecture} cannot be proven: " + "; ".join(laws.once(broken)))
    with torch.no_grad():
        contest = Contest(plan, in_dtype(copy.deepcopy(model), dtype).eval(), classes, dtype, spread)
        contest.author_runs()
        contest.wrapper()
        for count, cut in cases:
            for name, rows in contest.schedules():
                contest.ours(count, cut, name, rows)
        return contest.proofs(cases)


def prove_module(
    plan: Plan,
    model: nn.Module,
    path: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    classes: ModuleType | None = None,
    ranks: Sequence[int] = (1, 2),
    dtype: torch.dtype = torch.float64,
    read: Callable[[Any], Any] = lambda given: given,
) -> list[Proof]:
    """Compare one module alone, with what the plan says at and below ``path``, on every number of ranks.

    Args:
        plan: may be unfinished: parameters that it does not name stay the author's.
        model: the author's model with random weights; not changed.
        path: the module that is called.
        args: what it is called with; floating point tensors are brought to ``dtype``.
        kwargs: the same by name.
        classes: the emitted module.
        ranks: numbers of ranks.
        dtype: what is computed in.
        read: what of a result anybody reads.

    Raises:
        Mismatch: something differs.
    """
    author = in_dtype(copy.deepcopy(model), dtype).eval()
    theirs, worst = Witness(), 0.0
    with torch.no_grad(), arithmetic(dtype), theirs.watch(author), running("the author's module", theirs):
        wanted = author.get_submodule(path)(*_given(args, dtype), **_given(kwargs, dtype))
    fewer = _gives_fewer(plan, path)
    for count in ranks:
        how = f"{many(count, 'rank')}, {path} alone"
        witnesses = [Witness() for _ in range(count)]

        def serve(rank: int, group: Group, how: str = how, seen: list[Witness] = witnesses) -> Any:
            with arithmetic(dtype), running(how, seen[rank]):
                built = build(plan, author, classes, rank=rank, ranks=group.size, group=group, under=path, strict=False)
                with seen[rank].watch(built):
                    return built.get_submodule(path)(*_given(args, dtype), **_given(kwargs, dtype))

        with torch.no_grad(), running(how, witnesses[0]):
            results = Ranks(count).run(serve)
        for witness, found in zip(witnesses, results, strict=True):
            expected = without(wanted, found) if fewer else wanted
            author_all, ours_all = list(tensors(read(expected))), list(tensors(read(found)))
            same = len(ours_all) == len(author_all) > 0
            error = max(map(distance, author_all, ours_all), default=0.0) if same else float("inf")
            worst = max(worst, error)
            if not error <= BOUNDS[dtype]:
                inner = [call for call in calls(theirs, witness) if _told(call[0], path, plan)]
                raise apart(theirs, inner, {path: error}, BOUNDS[dtype], how)
    method = f"author's module against the plan, {str(dtype).removeprefix('torch.')}, ranks {' '.join(map(str, ranks))}"
    return [Proof(f"module {path}", method, worst, BOUNDS[dtype])]


def _gives_fewer(plan: Plan, path: str) -> bool:
    """Whether results of the module may be missing: weights of attention, or what does not follow the tokens."""
    at = [op for op in plan.ops if f"{op.path}.".startswith(f"{path}.")]
    return any(isinstance(op, History) or (isinstance(op, Attention) and op.measured) for op in at)


def _told(at: str, path: str, plan: Plan) -> bool:
    """Whether a call at ``at`` is of ``path`` and comparable."""
    return (at == path or at.startswith(f"{path}.")) and at not in moved(plan)


def without(value: Any, like: Any) -> Any:
    """``value`` without what ``like`` does not have: attention weights, which paged attention does not give."""
    if like is None:
        return None
    if isinstance(value, tuple | list) and isinstance(like, tuple | list) and len(value) == len(like):
        return [without(one, other) for one, other in zip(value, like, strict=True)]
    return value


def _given(value: Any, dtype: torch.dtype) -> Any:
    """A copy, which the module may write to; floating point tensors in ``dtype``."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype, copy=True) if value.is_floating_point() else value.clone()
    if isinstance(value, dict):
        return {name: _given(item, dtype) for name, item in value.items()}
    if type(value) in {tuple, list}:
        return type(value)(_given(item, dtype) for item in value)
    return value
