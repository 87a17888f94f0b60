"""Quantised experts as they lie on disk, one tensor for each expert and role: weights, and what scales them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from hfspeed.errors import CheckpointError
from hfspeed.plan import Experts, Plan
from hfspeed.planner.conversion import Conversion, Part
from hfspeed.vllm.versions import is_quantised

ROLES = {"gate": "w1", "down": "w2", "up": "w3"}
"""vLLM's names."""


class ExpertPieces:
    """Hands quantised experts' tensors to vLLM's own loader, and keeps count of them.

    Args:
        plan: the model's plan.
        conversion: how names on disk become those of the author.
    """

    def __init__(self, plan: Plan, conversion: Conversion) -> None:
        self.subject = plan.architecture
        self.ops = {op.path: op for op in plan.ops if isinstance(op, Experts)}
        self.conversion = conversion
        self.loaded: dict[str, set[tuple[str, int]]] = {}

    def left(self, root: nn.Module, weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        """Fill the quantised experts of ``root``; all other tensors come out again."""
        held = {path: held for path in self.ops if (held := _held(root, path)) is not None and is_quantised(held)}
        for name, tensor in weights:
            part = self._part(name) if held else None
            path = part.target.rpartition(".")[0] if part else ""
            if part is not None and path in held:
                numbers = re.findall(r"\.(\d+)\.", name[len(_common(name, path)) :])
                target = part.target.rpartition(".")[2]
                role = self._role(self.ops[path], target, part)
                self._load(held[path], path, name, role, int(numbers[0]) if len(numbers) == 1 else -1, tensor)
            elif (one := self._of_list(name)) is not None and one[0] in held:
                self._load(held[one[0]], one[0], name, one[1], one[2], tensor)
            else:
                yield name, tensor

    def check(self, root: nn.Module) -> None:
        """Raise unless every role of every expert has come, with its scales.

        Raises:
            CheckpointError: some are not on disk.
        """
        for path, op in self.ops.items():
            held = _held(root, path)
            if held is None or not is_quantised(held):
                continue
            roles = {"w1", "w2", "w3"} if op.gated else {"w1", "w2"}
            for parameter, _ in held.named_parameters():
                wanted = {"w2"} if parameter.startswith("w2") else roles - {"w2"}
                if parameter.endswith("input_scale"):
                    continue  # of static activation scales, which a dynamic scheme has not
                every = {(role, number) for role in wanted for number in range(op.count)}
                if missing := every - self.loaded.get(f"{path}.{parameter}", set()):
                    role, number = min(missing, key=lambda one: (one[1], one[0]))
                    raise CheckpointError(
                        f"{self.subject}: {len(missing)} of {len(every)} tensors of {path}.{parameter} are not on "
                        f"disk, the first of them {role} of expert {number}; check that the download is complete"
                    )

    def _part(self, name: str) -> Part | None:
        """The part that ``name`` is, or that the weight is which it is a scale of."""
        above, _, leaf = name.rpartition(".")
        return self.conversion.part(name if leaf == "weight" else f"{above}.weight")

    def _of_list(self, name: str) -> tuple[str, str, int] | None:
        """Path, role and number of an expert in a list of modules, by a tensor's name."""
        for path, op in self.ops.items():
            if op.apart and name.startswith(f"{path}."):
                number, _, rest = name[len(path) + 1 :].partition(".")
                weight = f"{rest.rpartition('.')[0]}.weight"
                if weight == op.down:
                    return path, ROLES["down"], int(number)
                if weight in op.up:
                    return path, ROLES["gate" if op.up.index(weight) == 0 else "up"], int(number)
        return None

    def _load(self, held: Any, path: str, name: str, role: str, number: int, tensor: torch.Tensor) -> None:
        home = ("w2_" if role == ROLES["down"] else "w13_") + name.rpartition(".")[2]
        parameter = getattr(held, home, None)
        if number < 0 or parameter is None:
            raise CheckpointError(
                f"{self.subject}: {name} is of experts that are quantised, and vLLM's layer has no place for it; "
                "serve the weights unquantised"
            )
        for copy in range(number, getattr(held, "global_num_experts", number + 1), self.ops[path].count):
            parameter.weight_loader(parameter, tensor, f"{path}.{home}", shard_id=role, expert_id=copy)
        self.loaded.setdefault(f"{path}.{home}", set()).add((role, number))

    def _role(self, op: Experts, target: str, part: Part) -> str:
        if target == op.down:
            return ROLES["down"]
        if not op.gated:
            return ROLES["gate"]
        first = op.up.index(target) if len(op.up) == 2 else part.converter.source_patterns.index(part.pattern)
        return ROLES["gate" if (first == 0) != op.swapped else "up"]


def _held(root: nn.Module, path: str) -> Any:
    """VLLM's holder of the experts at ``path``, if they are fused and on this stage."""
    module: nn.Module | None = root
    for piece in path.split("."):
        module = module._modules.get(piece) if module is not None else None
    return getattr(module, "held", None)


def _common(one: str, other: str) -> str:
    """What both begin with, in whole pieces."""
    pieces = []
    for mine, theirs in zip(one.split("."), other.split("."), strict=False):
        if mine != theirs:
            break
        pieces.append(mine)
    return ".".join(pieces)
