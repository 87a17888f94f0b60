"""Query and key turned by position: vLLM's kernel where it runs, plain operations where vLLM compiles."""

from __future__ import annotations

import torch
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding

from hfspeed.pattern.rotation import once, turned
from hfspeed.plan import Rotary
from hfspeed.vllm.kernels import rotate_in_place, whole_vectors
from hfspeed.vllm.site import Site


class Rotation(RotaryEmbedding):
    """`Rotary` as one of vLLM's layers; it holds no table, because cosines and sines are handed to it."""

    def __init__(self, op: Rotary) -> None:
        super().__init__(0, 0, 0, 0.0, not op.interleaved, torch.get_default_dtype(), init_cache=False)
        self.op = op

    def forward_native(
        self, query: torch.Tensor, key: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Query and key, turned; shapes as `Rotary` says."""
        both = once(cos, self.op.table), once(sin, self.op.table)
        return self._plainly(query, *both), None if key is None else self._plainly(key, *both)

    def forward_cuda(
        self, query: torch.Tensor, key: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The same, by the kernel, which writes over what it is given."""
        if {one.dtype for one in (query, key, cos, sin) if one is not None} != {query.dtype}:
            return self.forward_native(query, key, cos, sin)
        # made anew by each layer: whoever kept it could not see that an author writes over cosines
        table = torch.cat((once(cos, self.op.table), once(sin, self.op.table)), -1)
        if not (whole_vectors(table.shape[-1]) and whole_vectors(query.shape[-1])):
            return self.forward_native(query, key, cos, sin)
        first = self._flat(query)
        second = None if key is None else self._flat(key)
        places = torch.arange(len(table), device=table.device)
        rotate_in_place(places, first, second, query.shape[-1], table, interleaved=self.op.interleaved)
        return self._heads(first, query), None if key is None or second is None else self._heads(second, key)

    forward_cpu = forward_cuda
    forward_hip = forward_cuda

    def _plainly(self, value: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """One of the two, turned by plain operations, and laid out token by token, as attention reads it."""
        laid = value.transpose(1, 2) if self.op.tokens == 2 else value
        whole = turned(laid, cos, sin, tokens=1, interleaved=self.op.interleaved)
        return whole.transpose(1, 2) if self.op.tokens == 2 else whole

    def _flat(self, value: torch.Tensor) -> torch.Tensor:
        """``[tokens, heads * size]``, in memory that may be written over."""
        laid = value.transpose(1, 2) if self.op.tokens == 2 else value
        flat = laid.reshape(laid.shape[1], -1)
        shares = flat.data_ptr() == value.data_ptr()
        return flat if self.op.fresh or not shares else flat.clone()

    def _heads(self, flat: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        laid = flat.view(1, flat.shape[0], -1, like.shape[-1])
        return laid.transpose(1, 2) if self.op.tokens == 2 else laid


def rotary(op: Rotary, site: Site) -> None:
    """The layer, as a child of the author's module."""
    site.put(op.path, Rotation(op))
