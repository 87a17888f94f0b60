"""Loading: every parameter filled exactly once or tied, by exact names, or the model does not start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from vllm.logger import init_logger
from vllm.model_executor.model_loader.weight_utils import default_weight_loader, maybe_remap_kv_scale_name

from hfspeed.errors import CheckpointError, PlanError
from hfspeed.plan import Experts, Heads, Plan, Positions, Stacked
from hfspeed.plan.rows import Run, order
from hfspeed.plan.shares import Span, own_ranges
from hfspeed.planner.checkpoint import resolver
from hfspeed.planner.conversion import Conversion
from hfspeed.reference.layers import picked
from hfspeed.vllm.baked import Baked
from hfspeed.vllm.expert_pieces import ExpertPieces
from hfspeed.vllm.stages import is_here
from hfspeed.vllm.surplus import SHOWN, counted, surplus
from hfspeed.vllm.versions import is_quantised

logger = init_logger("vllm.hfspeed")


@dataclass(frozen=True)
class Slot:
    """Where one checkpoint tensor goes: a parameter, and vLLM's name for the part of it (``None``: all of it).

    ``rows`` is the order in which its rows are kept; a ``transposed`` matrix is ``[inputs, outputs]`` on disk. Of what
    is split segment by segment, a rank picks its ``own`` ranges along ``dim``.
    """

    target: str
    part: str | int | None = None
    rows: tuple[Run, ...] = ()
    transposed: bool = False
    own: tuple[Span, ...] = ()
    dim: int = 0

    def arranged(self, tensor: torch.Tensor) -> torch.Tensor:
        """``tensor`` as it is kept."""
        tensor = tensor.t() if self.transposed else tensor
        tensor = tensor[order(self.rows)] if self.rows else tensor
        return picked(tensor, self.own, self.dim) if self.own else tensor


class Loader:
    """What the plan says about weights, as vLLM loads them.

    Args:
        plan: the model's plan.
        author: the author's ``ForCausalLM`` before anything in it is replaced.
        strict: whether the first load has to fill everything; false where weights come later, or never.
        place: which rank this is, and of how many.
    """

    def __init__(self, plan: Plan, author: nn.Module, *, strict: bool, place: tuple[int, int] = (0, 1)) -> None:
        self.subject = plan.architecture
        self.resolve = resolver(author)
        self.conversion = Conversion(author)
        self.pieces = ExpertPieces(plan, self.conversion)
        self.paths = {path for path, _ in author.named_modules() if path}
        self.shapes = {name: tuple(value.shape) for name, value in author.state_dict().items()}
        self.baked = Baked(plan, author)
        self.strict = strict
        self.slots = _slots(plan, author, place)
        self.modules = _modules(self.slots)
        self.experts = _experts(plan)
        self.ties = {tie.source: tie.target for tie in plan.ties}

    def load(self, root: nn.Module, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Fill ``root`` from ``weights``; the names of the parameters that were filled.

        What is on disk and has no place in the model is left out, as transformers does, and a warning names it.

        Raises:
            CheckpointError: names that are missing, or that a quantised module may need and nobody knows; tensors of
                another shape; tied tensors that differ.
            PlanError: the plan names a parameter that was not built.
        """
        values = dict(root.named_parameters(remove_duplicate=False)) | dict(root.named_buffers(remove_duplicate=False))
        self._settle(root)
        self._check_built(root, values)
        filled: dict[Slot, str] = {}
        extra: dict[str, str] = {}
        for name, tensor in self.conversion.assembled(self.pieces.left(root, weights)):
            source, slots = self._place_of(name, values, extra)
            self.baked.check(name, source, tensor)
            for slot in slots:
                if not is_quantised(_holder(root, slot)):
                    self._check_shape(name, source, tensor)
                elif slot.rows or slot.transposed:
                    raise CheckpointError(
                        f"{self.subject}: {name} is quantised, but has to be rearranged, which is not possible once "
                        "numbers are packed; serve the weights unquantised"
                    )
                self._fill(values[slot.target], slot, name, slot.arranged(tensor), filled)
        missing = self._missing(root, values, filled) if self.strict else []
        if missing or self._needed(root, extra):
            raise CheckpointError(self._told(missing, extra))
        if extra:
            logger.warning(surplus(self.subject, list(extra)))
        if self.strict:
            self.pieces.check(root)
        self.strict = False
        return _all_names(values, filled)

    def _settle(self, root: nn.Module) -> None:
        """Fused experts are held under vLLM's names, which their layer knows once it is built."""
        for path, sources in self.experts.items():
            layer = root.get_submodule(path) if is_here(root, f"{path}.x") else None
            homes: dict[str, str] = getattr(layer, "homes", {})
            for name, source in sources.items():
                if (own := name.rpartition(":")[2]) in homes:
                    self.slots[source] = [Slot(f"{path}.{homes[own]}", name)]

    def _check_built(self, root: nn.Module, values: dict[str, Any]) -> None:
        """Raise for slots that do not exist, though their module is on this stage: nothing would ever fill them."""
        lost = [
            slot.target
            for slots in self.slots.values()
            for slot in slots
            if slot.target not in values and is_here(root, slot.target) and not is_quantised(_holder(root, slot))
        ]
        if lost:
            raise PlanError(f"{self.subject}: the plan fills parameters that nobody built: {', '.join(lost[:SHOWN])}")

    def _place_of(self, name: str, values: dict[str, Any], extra: dict[str, str]) -> tuple[str, list[Slot]]:
        """The name in the author's state dict, and where it goes; a name that nobody knows is noted in ``extra``."""
        fault = ""
        try:
            source = self.resolve(name)
        except CheckpointError as error:
            # a quantised layer's own tensors are in vLLM's layer, not in the author's state dict
            source, fault = name, str(error)
        if source is None:
            return name, []
        slots = self._slots_of(source, values)
        if slots is None:
            extra[name] = fault
        return source, slots or []

    def _check_shape(self, name: str, source: str, tensor: torch.Tensor) -> None:
        wanted = self.shapes.get(source)
        if wanted is not None and tuple(tensor.shape) != wanted:
            raise CheckpointError(
                f"{self.subject}: {name} is {list(tensor.shape)} on disk, but {list(wanted)} in the model; "
                "check that config.json and the weights belong together"
            )

    def _slots_of(self, source: str, values: dict[str, Any]) -> list[Slot] | None:
        """Where ``source`` goes on this stage; ``None`` for a name nobody knows."""
        source = self.ties.get(source, source)
        known = self.slots.get(source)
        if known is None:
            known = self._quantised(source, values)
        if known is None:
            return None
        known = known + [Slot(tied) for tied in self._copies(values) if self.ties[tied] == source]
        return [slot for slot in known if slot.target in values]

    def _copies(self, values: dict[str, Any]) -> list[str]:
        """Tied names that are tensors of their own here: the other one is on another stage, or in another layer."""
        return [tied for tied, target in self.ties.items() if tied in values and values[tied] is not values.get(target)]

    def _quantised(self, source: str, values: dict[str, Any]) -> list[Slot] | None:
        """A parameter that only a quantised layer has: scales, packed weights, cache scales."""
        above, _, name = source.rpartition(".")
        for slot in self.modules.get(above, ()):
            if f"{slot.target}.{name}" in values:
                return [replace(slot, target=f"{slot.target}.{name}")]
        scale = maybe_remap_kv_scale_name(source, values) if "scale" in name or "zero" in name else source
        if scale is None:
            return []
        return [Slot(scale)] if scale in values and scale not in self.slots else None

    def _fill(self, value: Any, slot: Slot, name: str, tensor: torch.Tensor, filled: dict[Slot, str]) -> None:
        before = value.data.clone() if slot in filled else None
        loader = getattr(value, "weight_loader", default_weight_loader)
        try:
            loader(value, tensor) if slot.part is None else loader(value, tensor, slot.part)
        except (AssertionError, RuntimeError, ValueError, IndexError) as error:
            raise CheckpointError(
                f"{self.subject}: {name} {list(tensor.shape)} does not fit {slot.target} {list(value.shape)} "
                f"(part {slot.part}): {error}; check that config.json and the weights belong together"
            ) from error
        if before is not None and not torch.equal(before, value.data):
            raise CheckpointError(
                f"{self.subject}: {name} and {filled[slot]} are one tensor in the model, but differ on disk; "
                "if they are meant to differ, set tie_word_embeddings to false in config.json"
            )
        filled.setdefault(slot, name)

    def _missing(self, root: nn.Module, values: dict[str, Any], filled: dict[Slot, str]) -> list[str]:
        """Names in the author's state dict whose slots on this stage are empty."""
        done = {(id(values[slot.target]), slot.part) for slot in filled}
        copies = {tied: [Slot(tied)] for tied in self._copies(values)}
        return [
            source
            for source, slots in (self.slots | copies).items()
            for slot in slots
            if slot.target in values
            and (id(values[slot.target]), slot.part) not in done
            and not is_quantised(_holder(root, slot))
        ]

    def _needed(self, root: nn.Module, extra: Iterable[str]) -> bool:
        """Whether a surplus tensor belongs to a module whose numbers are packed: it may say how to unpack them.

        Others the author's own loading leaves out as well, since nothing in the model could hold them.
        """
        if not any(map(is_quantised, root.modules())):
            return False
        above = {name.rpartition(".")[0] for name in extra}
        return any(one in self.paths or f"{self.conversion.prefix}.{one}" in self.paths for one in above)

    def _told(self, missing: list[str], extra: dict[str, str]) -> str:
        told = [f"{self.subject}: the weights on disk do not fill the model exactly"]
        told += counted("not on disk", missing) + counted("on disk, but not in the model", list(extra))
        if extra:
            told.append(f"for the first of them: {next(iter(extra.values()))}")
        told.append("check that config.json and the weights belong together, and that the download is complete")
        return "; ".join(told)


def _slots(plan: Plan, author: nn.Module, place: tuple[int, int]) -> dict[str, list[Slot]]:
    """Checkpoint name -> slots, from the plan's weights and the author's persistent buffers."""
    ops = {op.path: op for op in plan.ops}
    slots: dict[str, list[Slot]] = {}
    for weight in plan.weights:
        op = ops.get(weight.target.rpartition(".")[0])
        part: str | int | None = weight.part
        if isinstance(op, Heads) and weight.part is not None:
            part = "qkv"[weight.part]
        if isinstance(op, Stacked) and len(op.parts) == 1:
            part = None
        rows = op.rows if isinstance(op, Stacked | Heads) else ()
        own, dim = own_ranges(ops.get(weight.target, op), weight.part, *place)
        slot = Slot(weight.target, part, rows, weight.transposed, own, dim)
        for source in filter(None, (weight.source, weight.shared)):
            slots.setdefault(source, []).append(slot)
    for name in _persistent(author):
        table = isinstance(ops.get(name.rpartition(".")[0]), Positions)  # made already, of nothing that is loaded
        slots.setdefault(name, [] if table else [Slot(name)])
    return slots


def _experts(plan: Plan) -> dict[str, dict[str, str]]:
    """Path of experts -> the author's name of a parameter there, or of one expert's -> its name in the state dict."""
    found: dict[str, dict[str, str]] = {op.path: {} for op in plan.ops if isinstance(op, Experts)}
    for weight in plan.weights:
        above = next((one for one in found if weight.target.startswith(f"{one}.")), None)
        if above is not None:
            name = weight.target[len(above) + 1 :]
            found[above][name if weight.part is None else f"{weight.part}:{name}"] = weight.source
    return found


def _persistent(author: nn.Module) -> Iterator[str]:
    """Names of buffers that are saved."""
    saved = set(author.state_dict())
    return (name for name, _ in author.named_buffers(remove_duplicate=False) if name in saved)


def _modules(slots: dict[str, list[Slot]]) -> dict[str, list[Slot]]:
    """The same by modules: path in the checkpoint -> path and part in the built model."""
    modules: dict[str, list[Slot]] = {}
    for source, targets in slots.items():
        for slot in targets:
            here = replace(slot, target=slot.target.rpartition(".")[0])
            known = modules.setdefault(source.rpartition(".")[0], [])
            if here not in known:
                known.append(here)
    return modules


def _holder(root: nn.Module, slot: Slot) -> nn.Module | None:
    module: nn.Module | None = root
    for name in slot.target.split(".")[:-1]:
        module = module._modules.get(name) if module is not None else None
    return module


def _all_names(values: dict[str, Any], filled: Iterable[Slot]) -> set[str]:
    """Names of what was filled, under every name that one tensor has."""
    done = {id(values[slot.target]) for slot in filled}
    return {name for name, value in values.items() if id(value) in done}
