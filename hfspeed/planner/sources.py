"""The tensors of a model for arithmetic: shapes from its author's module, dtypes from the checkpoint's headers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from hfspeed.errors import UsageError
from hfspeed.plan import Plan, Recurrence
from hfspeed.plan.tensors import BITS, FLOATS, Piece, Sources, Tensor, extent, plain
from hfspeed.planner.build import build
from hfspeed.planner.checkpoint import UnknownTensorError, resolver
from hfspeed.planner.conversion import Conversion
from hfspeed.planner.dtypes import dtype_of
from hfspeed.planner.folder import has_weights
from hfspeed.planner.load import Subject
from hfspeed.planner.safetensors import Stored, stored
from hfspeed.recurrences import kernel_of

NAMES: Mapping[str, str] = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3",
    "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0", "F6_E2M3": "float6_e2m3", "F6_E3M2": "float6_e3m2",
    "F4": "float4", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32",
    "U16": "uint16", "U8": "uint8", "BOOL": "bool", "C64": "complex64",
}  # fmt: skip
"""The format's names of dtypes, and ours."""
AUTO, USUAL = "auto", "bfloat16"
"""The dtype that is found out; what a model is served in that says nothing, or float32, as vLLM does."""


def on_disk(subject: Subject) -> dict[str, Stored]:
    """The tensors in the folder of a model, by name; none where it has a configuration alone.

    Raises:
        CheckpointError: there are weights, but they cannot be read.
    """
    return stored(subject.folder) if subject.folder is not None and has_weights(subject.folder) else {}


def sources(subject: Subject, plan: Plan, dtype: str = AUTO) -> Sources:
    """What the plan's tensors take in memory.

    Args:
        subject: the model. Where its folder has weights, their headers say what is quantised and in which dtype.
        plan: its plan.
        dtype: what it is served in; as vLLM would decide by default.

    Raises:
        CheckpointError: as `on_disk`.
        UsageError: no such dtype.
    """
    if dtype not in {AUTO, *FLOATS}:
        raise UsageError(f"--dtype takes {', '.join((AUTO, *FLOATS))}; found {dtype!r}")
    model, disk = build(subject.model_class, subject.config), on_disk(subject)
    served = dtype if dtype != AUTO else _served(subject.config, disk)
    tensors = {name: _as_built(model, name, tensor, served) for name, tensor in _state(model)}
    lost = 0
    if disk:
        found, lost = _by_name(model, disk)
        tensors |= {n: _as_stored(tensors[n], own, n) for n, own in found.items() if n in tensors}
    kinds = {op.kind for op in plan.ops if isinstance(op, Recurrence)}
    exact = frozenset(kind for kind in kinds if kernel_of(kind).exact_state)
    size = sum(_bytes(one) for one in disk.values())
    return Sources(tensors, served, exact, _group(subject.config), size, lost)


def quantised(plan: Plan, found: Sources) -> frozenset[str]:
    """Paths of the ops that hold a quantised matrix."""
    return frozenset(
        weight.target.rpartition(".")[0]
        for weight in plan.weights
        if weight.source in found.tensors and found.tensors[weight.source].quantised
    )


def _served(config: Any, disk: Mapping[str, Stored]) -> str:
    """The dtype that vLLM takes by default: the configuration's, else that of the weights; never float32."""
    text = config.get_text_config(decoder=True)
    said = next((own for one in (config, text) if (own := getattr(one, "dtype", None)) is not None), None)
    name = str(said).removeprefix("torch.") if said is not None else ""
    if name not in FLOATS:
        sizes: Counter[str] = Counter()
        for one in disk.values():
            sizes[NAMES.get(one.dtype, "")] += _bytes(one)
        name = next((kind for kind, _ in sizes.most_common() if kind in FLOATS), USUAL)
    return USUAL if name in {"float32", "float64"} else name


def _state(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.state_dict(keep_vars=True).items()


def _as_built(model: Any, name: str, tensor: torch.Tensor, served: str) -> Tensor:
    kind = dtype_of(model, name, getattr(torch, served)) if tensor.is_floating_point() else tensor.dtype
    return plain(tuple(tensor.shape), str(kind).removeprefix("torch."))


def _by_name(model: Any, disk: Mapping[str, Stored]) -> tuple[dict[str, list[Stored]], int]:
    """What is on disk by the author's name that it helps to make, and how many tensors make nothing."""
    find = _finder(model)
    found: dict[str, list[Stored]] = {}
    lost = 0
    for name in sorted(disk):
        try:
            target = find(name)
        except UnknownTensorError:
            lost += 1
            continue
        if target is not None:
            found.setdefault(target, []).append(disk[name])
    return found, lost


def _finder(model: Any) -> Callable[[str], str | None]:
    """The author's name that a tensor on disk is a part of: itself, one in several forms, or an expert of all."""
    conversion, resolve = Conversion(model), resolver(model)

    def known(name: str) -> str | None:
        part = conversion.part(name)
        return part.target if part is not None else resolve(name)

    def find(name: str) -> str | None:
        try:
            return known(name)
        except UnknownTensorError:
            # `up.qweight` and `up.weight_scale` lie where `up.weight` would, `experts.up_blocks` at `experts.up`
            module, _, leaf = name.rpartition(".")
            for guess in (f"{module}.weight", *(f"{module}.{leaf[:at]}" for at in _ends(leaf))):
                try:
                    return known(guess)
                except UnknownTensorError:
                    continue
            raise

    return find


def _ends(leaf: str) -> list[int]:
    return [at for at, letter in enumerate(leaf) if letter == "_"][::-1]


def _as_stored(tensor: Tensor, own: list[Stored], name: str) -> Tensor:
    """What is on disk; a plain tensor is loaded in the dtype that is served, and stays as it is built."""
    if all(NAMES.get(one.dtype) in FLOATS for one in own) and _is_plain(own, name):
        return tensor
    inputs = tensor.shape[-1] if tensor.shape else 0
    sums: Counter[tuple[str, Any]] = Counter()
    for one in own:
        over = "inputs" if len(one.shape) == 1 and one.shape[0] == inputs != tensor.shape[0] else extent(one.shape)
        sums[NAMES.get(one.dtype, "uint8"), over] += _bytes(one)
    return replace(tensor, pieces=tuple(Piece(kind, count, over) for (kind, over), count in sums.items()))


def _is_plain(own: list[Stored], name: str) -> bool:
    """Whether everything on disk is called as what it makes, or is an expert's own matrix: no scale among it."""
    leaf = name.rpartition(".")[2]
    return len(own) == 1 or all(one.name.rpartition(".")[2] in {leaf, "weight", "bias"} for one in own)


def _bytes(one: Stored) -> int:
    return math.prod(one.shape) * BITS[NAMES.get(one.dtype, "uint8")] // 8


def _group(config: Any) -> tuple[int, int]:
    """How many inputs and outputs share a scale, where the configuration says that."""
    told = getattr(config, "quantization_config", None)
    values = told if isinstance(told, dict) else getattr(told, "__dict__", {})
    block = values.get("weight_block_size")
    if isinstance(block, list | tuple) and len(block) == 2:
        return int(block[1]), int(block[0])
    size = values.get("group_size", values.get("q_group_size"))
    return (int(size), 1) if isinstance(size, int) and size > 0 else (1, 1)
