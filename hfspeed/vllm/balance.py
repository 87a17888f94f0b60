"""Experts that move between ranks while they serve (``--enable-eplb``): what vLLM asks of a model for that."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor
from vllm.model_executor.models.interfaces import MixtureOfExperts

from hfspeed.errors import HfspeedError

if TYPE_CHECKING:
    from torch import nn


class Balanced(MixtureOfExperts):
    """The names by which vLLM counts, watches and moves the experts of a model."""

    expert_weights: MutableSequence[Sequence[Tensor]]

    def find_experts(self, root: nn.Module, parallel: Any) -> None:
        """Count the experts that vLLM may move; nothing, unless it was told to.

        Args:
            root: the model as it is built.
            parallel: vLLM's parallel settings.

        Raises:
            HfspeedError: some experts have no kernel of vLLM's, or layers have different numbers of them.
        """
        if not parallel.enable_eplb:
            return
        layers: list[Any] = [one for one in root.modules() if hasattr(one, "runner") and hasattr(one, "held")]
        counts: set[int] = {layer.op.count for layer in layers}
        if len(counts) != 1:
            found = "no experts that vLLM could move" if not counts else f"layers with {sorted(counts)} experts"
            raise HfspeedError(f"--enable-eplb takes layers with one number of experts, found {found}; leave it out")
        (count,) = counts
        self.moe_layers = [layer.runner for layer in layers]
        self.expert_weights = []
        self.num_moe_layers, self.num_expert_groups, self.num_shared_experts = len(layers), 1, 0
        self.num_logical_experts = self.num_routed_experts = count
        redundant = parallel.eplb_config.num_redundant_experts
        ranks = layers[0].held.moe_config.moe_parallel_config.ep_size
        self.num_local_physical_experts = (count + redundant) // ranks
        self.update_physical_experts_metadata(count + redundant, self.num_local_physical_experts)

    def update_physical_experts_metadata(self, num_physical_experts: int, num_local_physical_experts: int) -> None:
        """How many experts, copies counted, all ranks and this one hold from now on."""
        assert num_local_physical_experts == self.num_local_physical_experts, "every rank keeps its number of experts"
        self.num_physical_experts = num_physical_experts
        self.num_redundant_experts = num_physical_experts - self.num_logical_experts


def copies(held: Any, number: int, count: int) -> list[int]:
    """The places on this rank where expert ``number`` of ``count`` is when serving begins.

    Without copies that is one place, or none; copies follow all experts, in their order.
    """
    places = (held._map_global_expert_id_to_local_expert_id(at) for at in range(number, held.global_num_experts, count))
    return [place for place in places if place >= 0]
