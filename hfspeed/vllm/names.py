"""Checkpoint names as transformers reads them: declared renames, base prefix there or not, known leftovers."""

from __future__ import annotations

import re
from typing import Any

import torch
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

from hfspeed.errors import CheckpointError
from hfspeed.plan import Plan

LEFTOVERS = {"rotary_emb.inv_freq": r"rotary_emb\.inv_freq$", "position_ids": r"(^|\.)position_ids$"}
"""Buffers that older checkpoints hold under other paths than the model's; by how the model's own names end."""


class Names:
    """What a name on disk means in the author's state dict.

    Args:
        plan: for the names that the model declares ignorable.
        author: the author's ``ForCausalLM``, untouched: its class knows the renames, its state dict the shapes.
    """

    def __init__(self, plan: Plan, author: Any) -> None:
        self.subject = plan.architecture
        self.shapes = {name: value.shape for name, value in author.state_dict().items()}
        declared = getattr(type(author), "_checkpoint_conversion_mapping", None) or None
        mapping = get_model_conversion_mapping(author, key_mapping=declared)
        self.renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
        self.converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
        self.prefix = author.base_model_prefix or None
        buffers = [name for name, _ in author.named_buffers()]
        known = [pattern for end, pattern in LEFTOVERS.items() if any(name.endswith(end) for name in buffers)]
        own = [rf"^{re.escape(name)}$" for name in buffers if name not in self.shapes]
        self.ignored = [re.compile(pattern) for pattern in (*plan.ignorable, *known, *own)]

    def canonical(self, name: str) -> str:
        """The name in the author's state dict, if there is one, else the nearest to it.

        Raises:
            CheckpointError: transformers would compute this tensor from others, which is not done here.
        """
        renamed, converter = self._renamed(name, self.renamings, self.converters)
        if renamed in self.shapes:
            if converter is not None:
                raise CheckpointError(
                    f"{self.subject}: {name} has to be converted on loading ({converter} -> {renamed}), which hfspeed "
                    "does not do; load and save the checkpoint once with transformers"
                )
            return renamed
        plain, _ = self._renamed(name, [], [])
        return plain if plain in self.shapes else renamed

    def ignorable(self, name: str, canonical: str) -> bool:
        """Whether the model says that this name may be on disk without a place in it."""
        return any(pattern.search(name) or pattern.search(canonical) for pattern in self.ignored)

    def check_shape(self, name: str, canonical: str, tensor: torch.Tensor) -> None:
        """Raise unless ``tensor`` has the shape that the author's own parameter has."""
        wanted = self.shapes.get(canonical)
        if wanted is not None and tuple(tensor.shape) != tuple(wanted):
            raise CheckpointError(
                f"{self.subject}: {name} is {list(tensor.shape)} on disk, but {list(wanted)} in the model; "
                "check that config.json and the weights belong together"
            )

    def _renamed(self, name: str, renamings: list[Any], converters: list[Any]) -> tuple[str, str | None]:
        renamed, converter = rename_source_key(name, renamings, converters, self.prefix, self.shapes)
        return str(renamed), converter
