"""Tensors that transformers makes out of several on disk: experts stored one by one, projections stored apart."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from hfspeed.errors import CheckpointError


@dataclass(frozen=True)
class Part:
    """One tensor on disk that is a part of what the model has.

    Attributes:
        target: the first tensor in the author's state dict that it helps to make.
        pattern: transformers' name for the role it plays in that.
        converter: transformers' entry that makes it.
    """

    target: str
    pattern: str
    converter: Any

    @property
    def targets(self) -> tuple[str, ...]:
        """All that is made."""
        first, *more = self.converter.target_patterns
        return self.target, *(self.target.replace(first, other) for other in more)


@dataclass
class _Group:
    """The parts of one target so far: ``(name on disk, role, tensor)``."""

    part: Part
    elements: int = 0
    members: list[tuple[str, str, torch.Tensor]] = field(default_factory=list)


class Conversion:
    """What transformers would compute on loading, for a model of the author's (on meta will do)."""

    def __init__(self, model: Any) -> None:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightConverter, WeightRenaming

        declared = getattr(type(model), "_checkpoint_conversion_mapping", None) or None
        mapping = get_model_conversion_mapping(model, key_mapping=declared)
        self.renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
        self.converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
        self.model = model
        self.prefix = model.base_model_prefix or None
        self.sizes = {name: tensor.numel() for name, tensor in model.state_dict().items()}
        self.names = dict.fromkeys(self.sizes, True)

    def renamed(self, name: str) -> tuple[str, str | None]:
        """What transformers calls ``name``, and the role in which it is converted, if it is."""
        from transformers.core_model_loading import rename_source_key

        found: tuple[str, str | None] = rename_source_key(
            name, self.renamings, self.converters, self.prefix, self.names
        )
        return found

    def part(self, name: str) -> Part | None:
        """The part that ``name`` is; ``None`` for a tensor that goes as it is, or nowhere."""
        renamed, pattern = self.renamed(name)
        if pattern is None or renamed not in self.names:
            return None
        return Part(renamed, pattern, next(entry for entry in self.converters if pattern in entry.source_patterns))

    def enough(self, part: Part, elements: int) -> bool:
        """Whether ``elements`` elements are all that the part's target is made of."""
        return len(part.converter.target_patterns) > 1 or elements >= self.sizes[part.target]

    def assembled(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        """``weights`` with parts put together as soon as all of one target have come; other tensors as they are.

        Raises:
            CheckpointError: parts that do not fit together, or that are not all there.
        """
        groups: dict[str, _Group] = {}
        for name, tensor in weights:
            part = self.part(name)
            if part is None:
                yield name, tensor
                continue
            group = groups.setdefault(part.target, _Group(part))
            group.members.append((name, part.pattern, tensor))
            group.elements += tensor.numel()
            if self.enough(part, group.elements):
                yield from self._converted(groups.pop(part.target))
        if groups:
            target, group = next(iter(groups.items()))
            raise CheckpointError(
                f"{type(self.model).__name__}: {target} is made of tensors that are not all on disk: "
                f"{group.elements} elements of {self.sizes[target]}, the last of them {group.members[-1][0]}; "
                "check that the download is complete"
            )

    def _converted(self, group: _Group) -> Iterator[tuple[str, torch.Tensor]]:
        from transformers.core_model_loading import dot_natural_key

        part = group.part
        converter = copy.copy(part.converter)
        converter.collected_tensors = {}
        for _, pattern, tensor in sorted(group.members, key=lambda member: dot_natural_key(member[0])):
            converter.collected_tensors.setdefault(pattern, []).append(tensor)
        try:
            made = converter.convert(part.target, model=self.model, config=self.model.config)
        except (RuntimeError, ValueError, LookupError, TypeError) as error:
            raise CheckpointError(
                f"{type(self.model).__name__}: {part.target} cannot be made of {group.members[0][0]} and "
                f"{len(group.members) - 1} more: {error}; check that config.json and the weights belong together"
            ) from error
        for name, tensor in made.items():
            yield name, tensor[0] if isinstance(tensor, list) else tensor
