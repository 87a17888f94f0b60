"""Small numerical experiments on single modules: they decide what a module computes, not its spelling."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator

import torch
from torch import nn

from hfspeed.plan import NormWeight

_SEED = 20_011


class CannotProbe(Exception):  # noqa: N818  says what happened
    """The module does not run alone on a float tensor; says why."""


def materialised(module: nn.Module, dtype: torch.dtype = torch.float64) -> nn.Module:
    """A copy with random parameters on the CPU, whatever device the module is on.

    Raises:
        CannotProbe: a buffer has no values to copy.
    """
    if any(buffer.is_meta for buffer in module.buffers()):
        raise CannotProbe("a buffer has no values")
    twin = copy.copy(module)
    twin._parameters = {}
    generator = torch.Generator().manual_seed(_SEED)
    for name, parameter in module._parameters.items():
        if parameter is None:
            twin._parameters[name] = None
            continue
        values = 2 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)  # of both signs
        twin._parameters[name] = nn.Parameter(values.to(dtype), requires_grad=False)
    return twin


def run(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """``module(x)`` alone.

    Raises:
        CannotProbe: it does not take one tensor, or does not give one.
    """
    with torch.no_grad():
        try:
            y = module(x)
        except (TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
            raise CannotProbe(str(error).split("\n")[0]) from error
    if not isinstance(y, torch.Tensor):
        raise CannotProbe(f"it returns {type(y).__name__}")
    return y


_Verdict = tuple[float, NormWeight, float]
_PROBED: dict[tuple[object, ...], _Verdict | str] = {}


def rms_norm(module: nn.Module, rank: int, size: int) -> _Verdict:
    """As `probe_rms_norm`, asked once of modules that cannot differ: same class, same attributes.

    Raises:
        CannotProbe: see there.
    """
    facts = [(k, v) for k, v in sorted(vars(module).items()) if not k.startswith("_")]
    if any(True for _ in module.buffers()) or not all(_is_plain(v) for _, v in facts):
        return probe_rms_norm(module, rank, size)
    key = (type(module), repr(facts), rank, size, tuple(p.shape for p in module.parameters()))
    if key not in _PROBED:
        try:
            _PROBED[key] = probe_rms_norm(module, rank, size)
        except CannotProbe as why:
            _PROBED[key] = str(why)
    verdict = _PROBED[key]
    if isinstance(verdict, str):
        raise CannotProbe(verdict)
    return verdict


def _is_plain(value: object) -> bool:
    if isinstance(value, (tuple, list)):
        return all(_is_plain(item) for item in value)
    return isinstance(value, (bool, int, float, str, type(None)))


def probe_rms_norm(module: nn.Module, rank: int, size: int) -> _Verdict:
    """Epsilon, weight kind and largest relative error of a module that is a root-mean-square norm.

    ``x / sqrt(mean(x²) + eps) * f(w)`` over the last dimension, with ``f`` one of nothing, ``w``, ``1 + w``.

    Raises:
        CannotProbe: it is none; says by how much.
    """
    twin = materialised(module)
    weights = list(twin.parameters(recurse=False))
    shape = (*range(2, rank + 1), size)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(_SEED), dtype=torch.float64)
    unit = run(twin, x * 1e8)
    _same_shape(unit, x)
    ideal = x / x.pow(2).mean(-1, keepdim=True).sqrt()
    kinds = {"plain": weights[0], "one_plus": 1 + weights[0]} if weights else {"none": torch.ones(())}
    errors = {kind: _error(unit, ideal * factor) for kind, factor in kinds.items()}
    kind = min(errors, key=lambda k: errors[k])
    if not errors[kind] < 1e-4:
        raise CannotProbe(f"it differs from a root-mean-square norm by {errors[kind]:.2g}")
    eps = _epsilon(twin, x, kinds[kind])
    worst = max(
        _error(run(twin, x * s), s * x / ((s * x).pow(2).mean(-1, keepdim=True) + eps).sqrt() * kinds[kind])
        for s in _scales(eps)
    )
    if not worst < 1e-5:
        raise CannotProbe(f"it differs from a root-mean-square norm by {worst:.2g}")
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        _in_dtype(materialised(module, dtype), x, eps, kind, dtype)
    return eps, kind, worst  # type: ignore[return-value]


def _in_dtype(twin: nn.Module, x: torch.Tensor, eps: float, kind: str, dtype: torch.dtype) -> None:
    """What the dtype decides must not differ: some read epsilon off it, some give another dtype than they take."""
    scale = math.sqrt(eps) if eps > 0 else 1e-3
    given = (x * (max(scale, 1e-2) if dtype is torch.float16 else scale)).to(dtype)  # smaller squares are 0 there
    name = str(dtype).removeprefix("torch.")
    y = run(twin, given)
    if y.dtype is not given.dtype:
        raise CannotProbe(f"it gives {str(y.dtype).removeprefix('torch.')} for {name}")
    factor = {"plain": 0, "one_plus": 1}[kind] + next(twin.parameters()).double() if kind != "none" else torch.ones(())
    wanted = given.double() / (given.double().pow(2).mean(-1, keepdim=True) + eps).sqrt() * factor
    if not (error := _error(y, wanted)) < 0.05:
        raise CannotProbe(f"its epsilon depends on the dtype: in {name} it is off by {error:.2g}")


def _same_shape(y: torch.Tensor, x: torch.Tensor) -> None:
    if y.shape != x.shape:
        raise CannotProbe(f"it turns {tuple(x.shape)} into {tuple(y.shape)}")


def _scales(eps: float) -> Iterator[float]:
    near = math.sqrt(eps) if eps > 0 else 1e-3
    yield from (near / 10, near, near * 3, 1.0, 30.0)


def _error(y: torch.Tensor, wanted: torch.Tensor) -> float:
    """Largest difference relative to the largest magnitude wanted; infinite if not a number."""
    difference = (y.double() - wanted.double()).abs().max() / wanted.double().abs().max()
    return float(difference) if torch.isfinite(difference) else math.inf


def _epsilon(module: nn.Module, x: torch.Tensor, factor: torch.Tensor) -> float:
    """Epsilon, solved from inputs so small that it is all there is under the root."""
    tiny = x * 1e-10
    y = run(module, tiny).double()
    ratio = ((tiny * factor) / y).pow(2) - tiny.pow(2).mean(-1, keepdim=True)
    eps = float(ratio[torch.isfinite(ratio)].median()) if torch.isfinite(ratio).any() else 0.0
    if eps < 1e-18:
        return 0.0
    written = [v for v in vars(module).values() if isinstance(v, float)]
    short = [float(f"{eps:.{digits}g}") for digits in range(1, 7)]
    return next((v for v in (*written, *short) if abs(v - eps) <= 2e-6 * eps), eps)


def row_scale(module: nn.Module, vocab: int) -> float:
    """The factor by which an embedding multiplies the rows of its table.

    Raises:
        CannotProbe: it does something else than look up and multiply.
    """
    parameters = dict(module.named_parameters())
    if list(parameters) != ["weight"]:
        raise CannotProbe("it has more than a table")
    twin = copy.copy(module)
    rows = min(vocab, 64)
    table = torch.rand((rows, parameters["weight"].shape[1]), dtype=torch.float64) + 0.5
    twin._parameters = {"weight": nn.Parameter(table, requires_grad=False)}
    if isinstance(twin, nn.Embedding):
        twin.num_embeddings, twin.padding_idx = rows, None
    ids = torch.arange(rows).reshape(1, -1)
    ratio = run(twin, ids).double().reshape(rows, -1) / table
    scale = float(ratio.mean())
    if not torch.allclose(ratio, torch.full_like(ratio, scale), rtol=1e-6):
        raise CannotProbe("it does more than look up a row and multiply it")
    return scale
