"""Modules that mix tokens in a way that nobody knows: found by changing one token of what they are given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from hfspeed.errors import RefusedError
from hfspeed.graph.nodes import is_attention
from hfspeed.graph.record import Call
from hfspeed.graph.stateful import is_stateful, misnamed
from hfspeed.graph.tensors import tensors
from hfspeed.plan import History
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.mismatch import arithmetic
from hfspeed.planner.study import TOKENS, Study
from hfspeed.planner.verdicts import Key, key
from hfspeed.planner.written_calls import Call as Given
from hfspeed.planner.written_calls import chooses_so_many, shaped
from hfspeed.recurrences.history import NONE, most, results
from hfspeed.recurrences.written import Written
from hfspeed.refusal import Reason, Refusal

TOUCHED = 4
"""The token that is changed; those before it must not notice."""
NOTICED = 1e-9
"""A smaller change, relative to the largest value, is another order of summation."""

ATTENDS = "attends by its author's own function, on whole sequences each step, and is whole on every rank"


def mixers(study: Study, base: str) -> Iterator[frozenset[Key]]:
    """Kinds of modules that may be run on whole histories: first those nothing is known about, then all.

    Args:
        study: recorded with values.
        base: path of the base model, which is none of them. torch's own modules mix as their callers mean them to.
    """
    calls = [c for path, c in study.recording.calls.items() if path.startswith(f"{base}.") and _alone(study, path)]
    known = {key(call): call for call in reversed(calls)}
    known = {kind: call for kind, call in known.items() if not call.cls.__module__.startswith("torch.")}
    mixing = {kind for kind, call in known.items() if _mixes(study, call)}
    inner = {kind for kind in mixing if not _above(kind, calls, mixing)}
    unknown = {kind for kind in inner if not any(is_stateful(node) for node in known[kind].graph.nodes)}
    yield from (frozenset(found) for found in (unknown, inner) if found)


def history(call: Call, how: Written | None = None) -> tuple[History, Refusal]:
    """The op of a module, and what it costs; ``how`` it is called, if it attends as its author wrote it."""
    found = f"`{call.cls.__name__}` mixes tokens in a way that no kernel knows, so it runs on whole sequences each step"
    for name in misnamed(call.cls):
        found += f"; `{name}` is not what libraries compute under that name, or by such arguments"
    help_ = "call the function of a kernel library, by its name and with its arguments"
    told = Refusal("state", Reason.NO_KERNEL, found, call.path, help=help_)
    inputs = tuple(_told(one) for one in tensors((call.args, call.kwargs)))
    gives = tuple(_told(one) if isinstance(one, torch.Tensor) else NONE for one in results(call.output))
    if how is None:
        return History(call.path, inputs, gives), told
    attends = f"`{call.cls.__name__}` {ATTENDS}"
    if how.counts or any(map(most, how.inputs)):
        attends += "; which of equally good tokens it chooses may change as a sequence grows, as it does for its author"
    given = list(tensors((call.args, call.kwargs)))
    same = len(given) == len(how.inputs)
    if not same or not chooses_so_many(call.module, TOKENS, Given(call.args, call.kwargs, call.output), how):
        found = "it is called otherwise, or gives something else, than a narrow one of it"
        raise RefusedError(call.path, (Refusal("attention", Reason.VALUE_VARIES, found, call.path),))
    like = [shaped(told, one) for told, one in zip(how.inputs, given, strict=True)]
    back = [shaped(told, one) for told, one in zip(how.gives, results(call.output), strict=True)]
    op = History(call.path, tuple(like), tuple(back), tuple(map(str, how.masks)), eager=True)
    return op, Refusal("state", Reason.NO_KERNEL, attends, call.path)


def _told(value: torch.Tensor) -> str:
    """``"1xTx64"``; ``"none"`` where tokens lie in no dimension, or in several."""
    if list(value.shape).count(TOKENS) != 1:
        return NONE
    sizes = "x".join("T" if size == TOKENS else str(size) for size in value.shape)
    return sizes if value.is_floating_point() else f"{sizes}_{str(value.dtype).removeprefix('torch.')}"


def _alone(study: Study, path: str) -> bool:
    """Called once, and without attention of vLLM's inside."""
    if path in study.recording.again:
        return False
    inside = [c for p, c in study.recording.calls.items() if p == path or p.startswith(f"{path}.")]
    return not any(is_attention(node) for call in inside for node in call.graph.nodes)


def _above(kind: Key, calls: list[Call], mixing: set[Key]) -> bool:
    """Whether modules of this kind have one inside that mixes as well."""
    paths = [call.path for call in calls if key(call) == kind]
    return any(key(call) in mixing and call.path.startswith(f"{path}.") for call in calls for path in paths)


def _mixes(study: Study, call: Call) -> bool:
    """Whether later tokens notice a change of one, and earlier ones do not."""
    leaves, spec = tree_flatten((call.args, call.kwargs))
    changed = [_changed(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    module = study.model.get_submodule(call.path)
    try:
        with torch.no_grad(), arithmetic(torch.float64):
            outs = [_run(module, tree_unflatten(given, spec)) for given in ([_own(x) for x in leaves], changed)]
    except AUTHOR_ERRORS:
        return False
    pairs = [(a, b) for a, b in zip(*outs, strict=True) if list(a.shape).count(TOKENS) == 1 and a.shape == b.shape]
    before = after = False
    for one, other in pairs:
        noticed = (one - other).abs() > NOTICED * one.abs().max()
        moved = noticed.movedim(list(one.shape).index(TOKENS), 0).flatten(1).any(1)
        before, after = before or bool(moved[:TOUCHED].any()), after or bool(moved[TOUCHED + 1 :].any())
    return after and not before


def _own(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


def _changed(leaf: torch.Tensor) -> torch.Tensor:
    own = leaf.clone()
    if leaf.is_floating_point() and list(leaf.shape).count(TOKENS) == 1:
        row = own.select(list(leaf.shape).index(TOKENS), TOUCHED)
        row.add_(torch.randn(row.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(row.dtype))
    return own


def _run(module: Any, given: Any) -> list[torch.Tensor]:
    args, kwargs = given
    return list(tensors(module(*args, **kwargs)))
