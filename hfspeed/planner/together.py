"""Where the author's code takes the tokens of a row together, other than by attention or a known recurrence."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import fx, nn

from hfspeed.graph.call import closed
from hfspeed.graph.nodes import function_name, module_of
from hfspeed.graph.positions import place_in
from hfspeed.graph.record import Call, Recording, record
from hfspeed.graph.tensors import pairs, tensors
from hfspeed.pattern.replacement import place_of
from hfspeed.plan import Attention, Experts, History, Plan, Recurrence
from hfspeed.plan.paths import within
from hfspeed.planner.ends import table_of
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.mismatch import arithmetic
from hfspeed.planner.noticed import noticed
from hfspeed.planner.prompts import prompt
from hfspeed.planner.study import TOKENS, Study
from hfspeed.planner.ways import line
from hfspeed.reference.asking import ids_name
from hfspeed.refusal import Reason, Refusal

REDUCES: Final = frozenset({
    "all", "amax", "amin", "any", "argmax", "argmin", "count_nonzero", "logsumexp", "max", "mean", "median", "min",
    "nansum", "norm", "prod", "quantile", "std", "sum", "var", "vector_norm",
})  # fmt: skip
"""Functions and methods that make one number of many."""
TOUCHED: Final = (4, 0, TOKENS - 1)
"""The tokens that are changed, one in each run: one in the middle, and those that code may pick out."""
HELP: Final = (
    "let tokens meet in attention alone, or move the operation to a module of its own that is called with the hidden "
    "states: such a module is run on whole sequences"
)
TENSOR: Final = (
    "keep it a tensor: hand it to attention as `scaling`, or multiply by it; what is a number must be made in "
    "`__init__` of the configuration"
)


def reductions(small: Study, plan: Plan) -> tuple[Refusal, ...]:
    """Refusals of results that hang on all tokens of a row at once, although no prompt of the proof showed it.

    A threshold may lie where small models with random weights never come; the dataflow shows it all the same.
    """
    apart = [op.path for op in plan.ops if isinstance(op, Attention | Experts | History | Recurrence)]
    found = {call.cls: no for call, no in _reading(small, plan)}
    for path, call in small.recording.calls.items():
        if call.closed or within(path, apart):
            continue
        for node in call.graph.nodes:
            if call.cls not in found and _reduces(node) and _counts(node):
                text = f"`{function_name(node)}` takes all tokens of a row together, and several sequences share one"
                place = place_of(call, node)
                found[call.cls] = Refusal("model", Reason.VALUE_VARIES, text, path, place, help=HELP)
    return tuple(found.values())


def _reading(small: Study, plan: Plan) -> Iterator[tuple[Call, Refusal]]:
    """Modules run on whole sequences that decide by values; the proof looked at none of what else they may decide."""
    shut = {op.path: small.recording.calls[op.path] for op in plan.ops if isinstance(op, History)}
    shut = {path: call for path, call in shut.items() if call.closed}
    if shut:
        one, other = (_open(small, changed) for changed in (None, TOUCHED[0]))
        for path, call in shut.items():
            inside = [n for n, (at, _) in enumerate(one.reads) if f"{at}.".startswith(f"{path}.")]
            if inside:
                yield _reads(call, one, other, inside)


def _reads(call: Call, one: Recording, other: Recording, inside: Sequence[int]) -> tuple[Call, Refusal]:
    """What to tell of a module that reads values, at the line of the first of them."""
    place = place_in(one.read_at[inside[0]]) or place_of(call)
    values = [[run.reads[n] for n in inside if n < len(run.reads)] for run in (one, other)]
    plain = any(type(value) is not bool for _, value in values[0])  # the answer to a question may be the same by chance
    if plain and values[0] == values[1] and len(one.reads) == len(other.reads):
        text = f"`{call.cls.__name__}` reads a plain number off its weights, which are known only when they are loaded"
        return call, Refusal("model", Reason.VALUE_VARIES, text, call.path, place, help=TENSOR)
    text = f"`{call.cls.__name__}` decides by values of all tokens of a row, and several sequences share one"
    return call, Refusal("model", Reason.VALUE_VARIES, text, call.path, place, help=HELP)


def _reduces(node: fx.Node) -> bool:
    if function_name(node) not in REDUCES:
        return False
    given = [one for n in node.all_input_nodes for one in tensors(n.meta.get("value"))]
    gives = list(tensors(node.meta.get("value")))
    return any(TOKENS in one.shape for one in given) and not any(_many(one) for one in gives)


def _many(value: torch.Tensor) -> bool:
    return any(size and size % TOKENS == 0 for size in value.shape)


def _counts(node: fx.Node) -> bool:
    """Whether what is made of ``node`` is part of what the module returns, or hands to a child."""
    seen, left = {node}, [node]
    while left:
        for user in left.pop().users:
            if user.op in {"output", "call_module"}:
                return True
            if user not in seen:
                seen.add(user)
                left.append(user)
    return False


def meeting(small: Study, plan: Plan) -> Refusal | None:
    """Where a token notices another one: by their ids, or though attention gives each token only its own value.

    In a module that nobody looks into otherwise, experts mostly, it is looked for line by line as well.
    """
    if by_ids := noticed(small, plan):
        return by_ids
    attending = [op for op in plan.ops if isinstance(op, Attention)]
    if any(isinstance(op, Recurrence) for op in plan.ops) or any(op.measured for op in attending):
        return None
    for token in TOUCHED:
        try:
            one, other = (_run(small, attending, changed) for changed in (None, token))
            found = _meets(one, other, token)
            if found is not None and found.shut:
                one, other = (_run(small, attending, changed, open_=True) for changed in (None, token))
                found = _meets(one, other, token) or found
        except AUTHOR_ERRORS:
            continue
        if found is not None:
            return found.told()
    return None


@dataclass(frozen=True)
class _Met:
    """Where a token noticed another one."""

    call: Call
    node: fx.Node

    @property
    def shut(self) -> bool:
        """Whether nobody looked into what did it."""
        return self.node.target is closed

    def told(self) -> Refusal:
        name = function_name(self.node) or type(module_of(self.node)).__name__
        by = f"in `{self.call.cls.__name__}`" if self.shut else f"by `{name}`"
        text = f"{by} a token notices others, which is not attention"
        place = line(self.node) or place_of(self.call, self.node)
        return Refusal("model", Reason.NUMBERS_DIFFER, text, self.call.path, place, help=HELP)


def _meets(one: Recording, other: Recording, token: int) -> _Met | None:
    for path, call in one.calls.items():
        if path in other.calls and (node := _first(call, other.calls[path], token)) is not None:
            return _Met(call, node)
    return None


class _OwnValue(nn.Module):
    """In place of attention: each token gets its own value."""

    is_hfspeed_attention = True

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, None]:
        return value.repeat_interleave(query.shape[1] // key.shape[1], 1).transpose(1, 2), None


def _run(small: Study, attending: Collection[Attention], changed: int | None, *, open_: bool = False) -> Recording:
    model = copy.deepcopy(small.fresh)
    for op in attending:
        model.get_submodule(op.path).attn = _OwnValue()
    with torch.no_grad(), arithmetic(torch.float64):
        return record(model, _asked(model, changed), shut=() if open_ else small.shut)


def _open(small: Study, changed: int | None) -> Recording:
    """A run in which every module is looked into."""
    model = copy.deepcopy(small.fresh)
    with arithmetic(torch.float64):
        return record(model, _asked(model, changed))


def _asked(model: Any, changed: int | None) -> dict[str, Any]:
    """A prompt, with another token at one place."""
    given = prompt(model, TOKENS)
    if changed is not None:
        rows = int(table_of(model).weight.shape[0])
        name = ids_name(model)
        given[name] = given[name].clone()
        given[name][0, changed] = (given[name][0, changed] + 1) % rows
    return given


def _first(call: Call, other: Call, token: int) -> fx.Node | None:
    """The first step of both runs that noticed another token, though nothing that it was given had; in their order."""
    seen: dict[fx.Node, bool] = {}
    for node, twin in zip(call.graph.nodes, other.graph.nodes, strict=False):
        if (node.op, str(node.target)) != (twin.op, str(twin.target)):
            return None  # another way was taken by then
        seen[node] = any(_notices(a, b, token) for a, b in pairs(node.meta.get("value"), twin.meta.get("value")))
        inside = (module := module_of(node)) is not None and not type(module).__module__.startswith("torch.")
        if seen[node] and node.all_input_nodes and not inside:
            return None if any(seen.get(n, True) for n in node.all_input_nodes) else node
    return None


def _notices(one: torch.Tensor, other: torch.Tensor, token: int) -> bool:
    """Whether the two differ for another token than the one that was changed, or have no dimension of tokens."""
    if one.shape != other.shape or torch.equal(one, other):
        return False
    if list(one.shape).count(TOKENS) != 1:
        return not _many(one)
    rows = (one != other).movedim(list(one.shape).index(TOKENS), 0).flatten(1).any(1)
    rows[token] = False
    return bool(rows.any())
