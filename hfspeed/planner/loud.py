"""Modules asked with louder values than random models make: no rare value may let tokens notice each other."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import torch
from torch import nn
from torch.utils._pytree import tree_map

from hfspeed.graph.nodes import is_attention
from hfspeed.graph.record import Call
from hfspeed.graph.tensors import tensors
from hfspeed.pattern.replacement import place_of
from hfspeed.plan import History, Plan, Recurrence
from hfspeed.plan.paths import within
from hfspeed.planner.ends import table_of
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.mismatch import arithmetic
from hfspeed.planner.prompts import prompt
from hfspeed.planner.study import TOKENS, Study
from hfspeed.planner.verdicts import key
from hfspeed.planner.witness import finite_distance
from hfspeed.reference.asking import ids_name, scores
from hfspeed.refusal import Reason, Refusal

LOUD: Final = (1.0, 6.0, 40.0)
"""How large values are, in the mean square."""
SEEDS: Final = 3
EVERY: Final = frozenset(range(TOKENS))
LATE: Final = frozenset(range(5, TOKENS))
"""The tokens that are changed where earlier ones must not notice."""
ODD: Final = frozenset(range(1, TOKENS, 2))
"""Those that are changed, and then the others, where no other must notice."""
BOUND: Final = 1e-7
HELP: Final = "let no token hang on later ones, whatever its values are"


def loud(small: Study, plan: Plan) -> tuple[Refusal, ...]:
    """Refusals of modules that let a token notice later ones, or any other where ``plan`` gives them tokens alone.

    Proofs show it where any values do. A threshold that ordinary values hardly pass is passed by loud ones.
    """
    known = [op.path for op in plan.ops if isinstance(op, History | Recurrence)]
    mixing = known + [path for path, call in small.recording.calls.items() if any(map(is_attention, call.graph.nodes))]
    found: dict[Any, Refusal] = {}
    for path, call in small.recording.calls.items():
        if key(call) in found or not path or path in small.recording.again or call.cls.__module__.startswith("torch."):
            continue
        inside = [one for one in mixing if within(one, [path])]
        alone = path not in mixing and not within(path, known)
        if _notices(small, call, inside if alone else [], alone=alone):
            which = "another" if alone else "a later one"
            told = f"with some values `{call.cls.__name__}` lets a token notice {which}"
            found[key(call)] = Refusal("model", Reason.VALUE_VARIES, told, path, place_of(call), help=HELP)
    return tuple(found.values()) or tuple(_ahead(small))


def _notices(small: Study, call: Call, mixing: list[str], *, alone: bool) -> bool:
    """Whether a module does so, with what it has of ``mixing`` modules inside giving what they gave once."""
    given = (call.args, call.kwargs)
    if not any(_by_tokens(one) for one in tensors(given)):
        return False
    for by in LOUD:
        one = tree_map(partial(_louder, by=by), given)
        try:
            with torch.no_grad(), arithmetic(torch.float64):
                wanted = _run(small, call, one, mixing)
                for seed in range(SEEDS if alone else 1):  # what mixes is slow, and tells of all that is late
                    for rows in (ODD, EVERY - ODD) if alone else (LATE,):
                        other = tree_map(partial(_changed, rows=sorted(rows), seed=seed), one)
                        found = _run(small, call, other, mixing)
                        if any(_differs(a, b, sorted(EVERY - rows)) for a, b in zip(wanted, found, strict=True)):
                            return True
        except AUTHOR_ERRORS:
            continue  # values that it was not made for
    return False


def _by_tokens(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and list(value.shape).count(TOKENS) == 1


def _louder(leaf: Any, *, by: float) -> Any:
    return _scaled(leaf, by) if _by_tokens(leaf) else leaf


def _scaled(value: torch.Tensor, by: float) -> torch.Tensor:
    return value * (by / value.square().mean().sqrt().clamp(min=1e-6))


def _changed(leaf: Any, *, rows: list[int], seed: int) -> Any:
    """Other values for some tokens, as loud as they were."""
    if not _by_tokens(leaf):
        return leaf
    source = torch.Generator().manual_seed(seed)
    fresh = torch.randn(leaf.shape, generator=source, dtype=torch.float64).to(leaf.dtype)
    at = list(leaf.shape).index(TOKENS)
    chosen = torch.tensor(rows)
    return leaf.index_copy(at, chosen, (fresh * leaf.square().mean().sqrt()).index_select(at, chosen))


def _run(small: Study, call: Call, given: Any, mixing: list[str]) -> list[torch.Tensor]:
    args, kwargs = tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, given)
    module = copy.deepcopy(small.model.get_submodule(call.path))
    for path in mixing:
        inner = module.get_submodule(path[len(call.path) + 1 :])
        inner.register_forward_hook(partial(_gave, output=small.recording.calls[path].output))
    return [one.clone() for one in tensors(module(*args, **kwargs))]


def _gave(_module: nn.Module, _args: Any, _out: Any, *, output: Any) -> Any:
    return tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, output)


def _differs(one: torch.Tensor, other: torch.Tensor, rows: list[int]) -> bool:
    if one.shape != other.shape or list(one.shape).count(TOKENS) != 1:
        return False
    at, kept = list(one.shape).index(TOKENS), torch.tensor(rows)
    return finite_distance(one.index_select(at, kept), other.index_select(at, kept)) > BOUND


def _ahead(small: Study) -> Iterator[Refusal]:
    """The same of the model as a whole, where its tables and norms are louder."""
    first, early = prompt(small.fresh, TOKENS), min(LATE)
    table = table_of(small.fresh).weight
    for by in LOUD[1:]:
        model = copy.deepcopy(small.fresh)
        for weight in (*(w for w in model.parameters() if w.ndim == 1), table_of(model).weight):
            weight.data = _scaled(weight.data, by)
        for seed in range(1, SEEDS + 1):
            ids = ids_name(model)
            other = first | {ids: first[ids].clone()}
            other[ids][:, early:] = (other[ids][:, early:] * (2 * seed + 1) + 1) % table.shape[0]
            with torch.no_grad(), arithmetic(torch.float64):
                try:
                    one, two = (scores(copy.deepcopy(model)(**asked)) for asked in (first, other))
                except AUTHOR_ERRORS:
                    return
            if one.shape[1] != TOKENS:
                return  # it answers its last token alone, which has none behind it
            if (apart := finite_distance(one[:, :early], two[:, :early])) > BOUND:
                told = f"with louder values a token notices later ones, by {apart:.1e}"
                yield Refusal("model", Reason.VALUE_VARIES, told, type(small.model).__name__, help=HELP)
                return
