"""Query and key turned by position: vLLM's kernel where it runs, plain operations where vLLM compiles."""

from __future__ import annotations

import torch
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding

from hfspeed.pattern.rotation import once, turned
from hfspeed.plan import Rotary
from hfspeed.vllm.kernels import rotate_in_place, whole_vectors
from hfspeed.vllm.site import Site


class Angles:
    """Cosines beside sines, as the kernel reads them; made once for all the layers that are given the same ones."""

    def __init__(self) -> None:
        self.cos: torch.Tensor | None = None
        self.sin: torch.Tensor | None = None
        self.beside = torch.empty(0)
        self.places = torch.empty(0, dtype=torch.long)

    def of(self, cos: torch.Tensor, sin: torch.Tensor, op: Rotary) -> tuple[torch.Tensor, torch.Tensor]:
        """``[tokens, 2 * angles]``, and the number of each row."""
        if self.cos is not cos or self.sin is not sin:
            self.cos, self.sin = cos, sin
            self.beside = torch.cat((once(cos, op.table), once(sin, op.table)), -1)
            if len(self.places) != len(self.beside):
                self.places = torch.arange(len(self.beside), device=cos.device)
        return self.beside, self.places


class Rotation(RotaryEmbedding):
    """`Rotary` as one of vLLM's layers; it holds no table, because cosines and sines are handed to it."""

    def __init__(self, op: Rotary, angles: Angles) -> None:
        super().__init__(0, 0, 0, 0.0, not op.interleaved, torch.get_default_dtype(), init_cache=False)
        self.op, self.angles = op, angles

    def forward_native(
        self, query: torch.Tensor, key: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Query and key, turned; shapes as `Rotary` says."""
        both = once(cos, self.op.table), once(sin, self.op.table)
        first, second = (
            None if one is None else turned(one, *both, tokens=self.op.tokens, interleaved=self.op.interleaved)
            for one in (query, key)
        )
        assert first is not None
        return first, second

    def forward_cuda(
        self, query: torch.Tensor, key: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The same, by the kernel, which writes over what it is given."""
        if {one.dtype for one in (query, key, cos, sin) if one is not None} != {query.dtype}:
            return self.forward_native(query, key, cos, sin)
        table, places = self.angles.of(cos, sin, self.op)
        if not (whole_vectors(table.shape[-1]) and whole_vectors(query.shape[-1])):
            return self.forward_native(query, key, cos, sin)
        first = self._flat(query)
        second = None if key is None else self._flat(key)
        rotate_in_place(places, first, second, query.shape[-1], table, interleaved=self.op.interleaved)
        return self._heads(first, query), None if key is None or second is None else self._heads(second, key)

    forward_cpu = forward_cuda
    forward_hip = forward_cuda

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
    """The layer; all layers of a model share the memory for cosines beside sines."""
    others = (m.angles for m in site.root.modules() if isinstance(m, Rotation) and m.op.table == op.table)
    site.put(op.path, Rotation(op, next(others, None) or Angles()))
