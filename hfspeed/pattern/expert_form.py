"""What a module of experts computes, found by running it: which tensors are gate, up and down, and what is between."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

import torch
from torch import nn

from hfspeed.graph.exact import Exact
from hfspeed.pattern.expert_math import ACTS, computed
from hfspeed.pattern.probe import CannotProbe, run
from hfspeed.plan import Experts

SMALL: Final = 1 << 24
SMALL_EACH: Final = 1 << 18
"""Elements of one parameter, and of one expert's part of it, above which a smaller twin is run in its place."""
SCALES: Final = (1.0, 0.1, 30.0, 1e4, 1e8)
"""Of the tokens: what is clamped, be it at a large number, and what is not."""
TOKENS: Final = 6
BOUND: Final = 1e-9
_SEED: Final = 20_023
_KNOWN: dict[tuple[object, ...], tuple[Experts | str, list[object]]] = {}


@dataclass(frozen=True)
class Sample:
    """Random arguments for a twin with random weights: tokens, chosen experts, weights; and what the author gives."""

    tensors: dict[str, torch.Tensor]
    tokens: torch.Tensor
    ids: torch.Tensor
    weights: torch.Tensor
    results: tuple[torch.Tensor, ...]


def expert_form(module: nn.Module, path: str, takes: tuple[str, ...], inputs: int, top_k: int) -> Experts:
    """The op that a module of experts is.

    Args:
        module: with parameters of its own that may be on meta; ``takes`` are its names for tokens, ids and weights.
        path: where it is.
        takes: its names for tokens, chosen experts and weights.
        inputs: width of a token.
        top_k: experts per token.

    Raises:
        CannotProbe: it is none of those that an `Experts` describes; says why.
    """
    facts, kept = _facts(module)
    key = (type(module), facts, takes, inputs, top_k)
    if key not in _KNOWN:
        try:
            _KNOWN[key] = _expert_form(module, takes, inputs, top_k), kept
        except CannotProbe as why:
            _KNOWN[key] = str(why), kept
    found = _KNOWN[key][0]
    if isinstance(found, str):
        raise CannotProbe(found)
    return replace(found, path=path)


def _facts(module: nn.Module) -> tuple[str, list[object]]:
    """All that two modules of one class can differ in, and what has to stay alive so that it is not mistaken."""
    shapes = [(name, tuple(parameter.shape)) for name, parameter in module.named_parameters()]
    told, kept = [repr(shapes)], []
    for name, child in module.named_modules():
        for key, value in vars(child).items():
            if not key.startswith("_") and key != "training":
                fact, alive = _fact(value)
                told.append(f"{name}.{key}={fact}")
                kept += alive
        told.append(f"{name}: {type(child).__module__}.{type(child).__qualname__}")
    return "; ".join(told), kept


def _fact(value: object) -> tuple[str, list[object]]:
    if isinstance(value, (bool, int, float, str, type(None))):
        return repr(value), []
    if isinstance(value, nn.Module):
        return _facts(value)
    if type(value) in {tuple, list, dict}:
        parts = [_fact(one) for one in (value.items() if isinstance(value, dict) else value)]  # type: ignore[attr-defined]
        return repr([told for told, _ in parts]), [one for _, alive in parts for one in alive]
    return f"id {id(value)}", [value]


def _expert_form(module: nn.Module, takes: tuple[str, ...], inputs: int, top_k: int) -> Experts:
    found: Experts | None = None
    shapes = _shapes(module)
    for one in list(_roles(shapes, "", takes, inputs, top_k)):
        sizes = _sizes(one, shapes)
        for size in sizes:
            measured = _measured(module, _resized(one, size), one, size)
            if measured is None or (found is not None and measured != found):
                found = None
                break
            found = measured
        if found is not None:
            return found
    raise CannotProbe("what it computes is none of the forms that a kernel has")


def _shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    if any(True for child in module.children() for _ in (*child.parameters(), *child.buffers())) or any(
        True for _ in module.buffers()
    ):
        raise CannotProbe("it has more than parameters of its own")
    return {name: tuple(p.shape) for name, p in module._parameters.items() if p is not None}


def _roles(
    shapes: dict[str, tuple[int, ...]], path: str, takes: tuple[str, ...], inputs: int, top_k: int
) -> Iterator[Experts]:
    """Every way in which the parameters could be gate, up and down, by their shapes alone."""
    matrices = [name for name, shape in shapes.items() if len(shape) == 3]
    vectors = [name for name, shape in shapes.items() if len(shape) == 2]
    counts = {shape[0] for shape in shapes.values()}
    if len(counts) != 1 or len(matrices) not in {2, 3} or len(matrices) + len(vectors) != len(shapes):
        raise CannotProbe("its parameters are not one up and one down, or gate, up and down, for every expert")
    (count,) = counts
    for down, turned in product(matrices, (False, True)):
        inner, wide = shapes[down][1:] if turned else shapes[down][:0:-1]
        rest = tuple(name for name in matrices if name != down)
        outs = [shapes[name][2 if turned else 1] for name in rest]
        ins = {shapes[name][1 if turned else 2] for name in rest}
        gated = sum(outs) == 2 * inner
        if wide != inputs or ins != {inputs} or len(set(outs)) > 1 or sum(outs) not in {inner, 2 * inner}:
            continue
        for ups, (up_bias, down_bias) in product(
            (rest, rest[::-1]) if len(rest) == 2 else (rest,), _biases(shapes, vectors, outs, inputs)
        ):
            yield Experts(
                path, count, top_k, inputs, inner, "silu", takes, ups, down, up_bias, down_bias, gated, turned=turned
            )


def _biases(
    shapes: dict[str, tuple[int, ...]], vectors: list[str], outs: list[int], inputs: int
) -> Iterator[tuple[tuple[str, ...], str | None]]:
    """Every way in which vectors could be biases of up and of down; all of them have a place."""
    if not vectors:
        yield (), None
    for down in (*vectors, None):
        rest = [name for name in vectors if name != down]
        if down is not None and shapes[down][1] != inputs:
            continue
        if not rest:
            yield (), down
        elif len(rest) == len(outs) and [shapes[name][1] for name in rest] == outs:
            yield tuple(rest), down
            if len(rest) == 2:
                yield tuple(rest[::-1]), down


def _sizes(op: Experts, shapes: dict[str, tuple[int, ...]]) -> list[tuple[int, int]]:
    """Widths of token and expert to run twins with: the module's own, or two pairs of small ones."""
    largest = max(torch.Size(shape).numel() for shape in shapes.values())
    if largest <= SMALL and largest <= SMALL_EACH * op.count:
        return [(op.inputs, op.inner)]
    if {op.count, op.top_k} & {op.inputs, op.inner, 2 * op.inner}:
        raise CannotProbe("it is too large to run, and its sizes cannot be told apart")
    if op.inputs == op.inner:
        return [(10, 10), (14, 14)]
    return [(12, 6), (16, 8)] if op.inputs == 2 * op.inner else [(14, 5), (18, 7)]


def _resized(op: Experts, size: tuple[int, int]) -> Experts:
    return replace(op, inputs=size[0], inner=size[1])


def _measured(module: nn.Module, op: Experts, whole: Experts, size: tuple[int, int]) -> Experts | None:
    """The form, in whole sizes, that explains every sample; ``None`` if none does."""
    twin = _twin(module, whole, size)
    samples = list(_samples(twin, op))
    for form in _forms(op, _constants(module)):
        if all(_explains(form, sample) for sample in samples):
            told = replace(form, skips=_skips(twin, form, samples[0]))
            return replace(told, inputs=whole.inputs, inner=whole.inner)
    return None


def _twin(module: nn.Module, op: Experts, size: tuple[int, int]) -> nn.Module:
    """A copy with random weights, perhaps of smaller sizes; numbers of its that are sizes shrink with them."""
    inputs, inner = size
    smaller = {op.inputs: inputs, op.inner: inner, 2 * op.inner: 2 * inner} if size != (op.inputs, op.inner) else {}
    twin = copy.copy(module)
    generator = torch.Generator().manual_seed(_SEED)
    twin._parameters = {}
    for name, parameter in module._parameters.items():
        if parameter is None:
            twin._parameters[name] = None
            continue
        shape = (parameter.shape[0], *(smaller.get(n, n) for n in parameter.shape[1:]))
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        twin._parameters[name] = nn.Parameter(values, requires_grad=False)
    for name, value in list(vars(module).items()):
        if isinstance(value, int) and not isinstance(value, bool) and value in smaller:
            setattr(twin, name, smaller[value])
    return twin


def _samples(twin: nn.Module, op: Experts) -> Iterator[Sample]:
    generator = torch.Generator().manual_seed(_SEED + 1)
    tensors = {name: p.data for name, p in twin._parameters.items() if p is not None}
    for scale in SCALES:
        tokens = torch.randn((TOKENS, op.inputs), generator=generator, dtype=torch.float64) * scale
        ids = torch.stack([torch.randperm(op.count, generator=generator)[: op.top_k] for _ in range(TOKENS)])
        weights = torch.randn((TOKENS, op.top_k), generator=generator, dtype=torch.float64)
        yield Sample(tensors, tokens, ids, weights, (_called(twin, op, tokens, ids, weights),))


def _called(twin: nn.Module, op: Experts, *given: torch.Tensor) -> torch.Tensor:
    class Bound(nn.Module):
        def forward(self, _: torch.Tensor) -> Any:
            return twin(**{name: value.clone() for name, value in zip(op.takes, given, strict=True)})

    with Exact():
        result = run(Bound(), given[0])
    if result.shape != given[0].shape:
        raise CannotProbe(f"it turns {tuple(given[0].shape)} into {tuple(result.shape)}")
    return result


def _forms(op: Experts, constants: list[float]) -> Iterator[Experts]:
    """Every form of these roles, the usual ones first."""
    packed = op.gated and len(op.up) == 1
    layouts = [(False, False), (True, False), (False, True), (True, True)] if packed else [(False, False)]
    betas = (0.0, 1.0) if op.gated else (0.0,)
    for weighs, limit, beta in product((False, True), (None, *constants), betas):
        for (interleaved, swapped), act in product(layouts, ACTS):
            for alpha in dict.fromkeys((1.0, *constants)) if act == "silu" else (1.0,):
                yield replace(
                    op, act=act, interleaved=interleaved, swapped=swapped, limit=limit, alpha=alpha, beta=beta,
                    weighs_input=weighs,
                )  # fmt: skip


def _constants(module: nn.Module) -> list[float]:
    """Positive numbers that the module keeps or its methods write, none of which is a size."""
    found = [value for value in vars(module).values() if isinstance(value, (int, float))]
    for cls in type(module).__mro__:
        if cls is nn.Module:
            break
        for method in vars(cls).values():
            found += [method] if isinstance(method, (int, float)) else []
            code = getattr(inspect.unwrap(method), "__code__", None) if callable(method) else None
            found += [c for c in code.co_consts if isinstance(c, (int, float))] if code is not None else []
    sizes = {n for p in module.parameters() for n in p.shape}
    return list(dict.fromkeys(float(v) for v in found if type(v) is not bool and 0 < v < 1e7 and v not in sizes))


def _explains(op: Experts, sample: Sample) -> bool:
    given = sample.tokens[:, None].expand(-1, op.top_k, -1)
    given = given * sample.weights[..., None] if op.weighs_input else given
    each = computed(op, sample.tensors, given, sample.ids)
    wanted = (each if op.weighs_input else each * sample.weights[..., None]).sum(1)
    return _error(sample.results[0], wanted) < BOUND


def _skips(twin: nn.Module, op: Experts, sample: Sample) -> bool:
    """Whether an expert's number of ``count`` counts for nothing; false if it is an error.

    Raises:
        CannotProbe: it means something else.
    """
    ids, weights = sample.ids.clone(), sample.weights.clone()
    ids[:, 0], weights[:, 0] = op.count, 0
    try:
        found = _called(twin, op, sample.tokens, ids, sample.weights)
    except CannotProbe:
        return False
    ids[:, 0] = 0
    wanted = _called(twin, op, sample.tokens, ids, weights)
    if not _error(found, wanted) < BOUND:
        raise CannotProbe(f"an expert's number of {op.count} means something")
    return True


def _error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    error = float((found - wanted).abs().max() / wanted.abs().max().clamp_min(1e-30))
    return error if math.isfinite(error) else math.inf
