"""Collectives that vLLM's CPU groups lack: rows of different numbers, gathered from all ranks and summed back."""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed


def uneven_collectives() -> None:
    """Give vLLM's CPU groups the collectives that send tokens to experts: shares of different sizes, one per rank.

    They have none, so data parallel with expert parallel stops at its first step.
    """
    from vllm.distributed.device_communicators.base_device_communicator import DeviceCommunicatorBase
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

    def one(self: Any, value: Any, sizes: list[int] | None) -> Any:
        if sizes is None:
            sizes = [value.shape[0]] * self.world_size
        padded = value.new_zeros((max(sizes), *value.shape[1:]))
        padded[: value.shape[0]] = value
        found = [torch.empty_like(padded) for _ in sizes]
        distributed.all_gather(found, padded, group=self.device_group)
        return torch.cat([share[:size] for share, size in zip(found, sizes, strict=True)])

    def all_gatherv(self: Any, input_: Any, dim: int = 0, sizes: list[int] | None = None) -> Any:
        """Every rank's rows, in rank order; of one tensor or of each in a list."""
        assert dim == 0, "only rows are gathered"
        return [one(self, value, sizes) for value in input_] if isinstance(input_, list) else one(self, input_, sizes)

    def reduce_scatterv(self: Any, input_: Any, dim: int = -1, sizes: list[int] | None = None) -> Any:
        """This rank's rows of the sum over all ranks."""
        assert dim == 0, "only rows are scattered"
        total = input_.contiguous().clone()
        distributed.all_reduce(total, group=self.device_group)
        shares = sizes or [total.shape[0] // self.world_size] * self.world_size
        return total.split(shares)[self.rank_in_group].contiguous()

    for name, made in (("all_gatherv", all_gatherv), ("reduce_scatterv", reduce_scatterv)):
        if getattr(CpuCommunicator, name) is getattr(DeviceCommunicatorBase, name):
            setattr(CpuCommunicator, name, made)


def sharded_tokens(value: Any) -> Any:
    """This rank's share of tokens ``[tokens, size]``, where each rank of a group sends its own to the experts."""
    from vllm.model_executor.models.utils import sequence_parallel_chunk

    return sequence_parallel_chunk(value)


def whole_tokens(value: Any, count: int) -> Any:
    """The tokens of all ranks; undoes `sharded_tokens`."""
    from vllm.distributed import tensor_model_parallel_all_gather

    return tensor_model_parallel_all_gather(value, 0)[:count]
