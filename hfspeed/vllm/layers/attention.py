"""vLLM's attention, called the way a transformers model calls its attention interface."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from vllm.model_executor.layers.attention import Attention as Layer
from vllm.model_executor.utils import set_weight_attrs

from hfspeed.plan import Attention
from hfspeed.plan.keywords import consume
from hfspeed.plan.shares import span
from hfspeed.refusal import Reason, Refusal, Refused
from hfspeed.vllm.artifacts import call_directly, operation
from hfspeed.vllm.chunks import chunked_backend, chunked_cache, whole_blocks
from hfspeed.vllm.site import Site, cache_name
from hfspeed.vllm.versions import cache_without_window, kernel_head_size


class InterfaceAttention(Layer):
    """One layer's attention with its cache: four-dimensional tensors in and out, every keyword checked."""

    is_hfspeed_attention = True

    def __init__(self, op: Attention, *, value_size: int, apart: bool, **settings: Any) -> None:
        if op.chunk is not None:
            settings["attn_backend"] = chunked_backend(settings["head_size"], op.chunk, settings["cache_config"])
        super().__init__(**settings)
        self.op = op
        self.value_size, self.key_size = value_size, op.head_size  # kernels may have larger ones
        self.repeats = self.num_heads // self.num_kv_heads
        self.register_buffer("number", _numbered(self) if apart else None, persistent=False)

    def get_kv_cache_spec(self, vllm_config: Any) -> Any:
        """What vLLM keeps for this layer: with chunks, no more than the newest."""
        spec = super().get_kv_cache_spec(vllm_config)
        return spec if self.op.chunk is None else chunked_cache(spec, self.op.chunk)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        **keywords: Any,
    ) -> tuple[torch.Tensor, None]:
        """Attend, over everything in the cache.

        Args:
            query: ``[1, heads, tokens, head_size]``, the heads of this rank.
            key: ``[1, kv_heads, tokens, head_size]``.
            value: ``[1, kv_heads, tokens, value_size]``.
            attention_mask: must be ``None``: vLLM knows which tokens belong together.
            keywords: what the model hands its attention.

        Returns:
            ``[1, tokens, heads, value_size]``, and ``None`` where weights would be.

        Raises:
            Refused: a mask, or a keyword that the plan does not know or knows another value of.
        """
        if attention_mask is not None:
            raise Refused(_masked(self.op))
        consume(self.op, keywords)
        flat = [_flat(_padded(tensor, self.head_size)) for tensor in (query, key, value)]
        out = super().forward(*flat) if self.number is None else ATTEND(*flat, self.number)
        out = out.view(1, -1, self.num_heads, self.head_size)
        return (out[..., : self.value_size] if self.head_size > self.value_size else out), None


class Turns(nn.Module):
    """Attention that is called several times a step: each call goes to the next of its layers.

    A step makes all of its calls, so the turn is where it was when the next begins.
    """

    is_hfspeed_attention = True

    def __init__(self, layers: list[InterfaceAttention]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.repeats, self.turn = layers[0].repeats, 0
        self.key_size, self.value_size = layers[0].key_size, layers[0].value_size

    def forward(self, *tensors: Any, **keywords: Any) -> tuple[torch.Tensor, None]:
        """As `InterfaceAttention`."""
        layer, self.turn = self.layers[self.turn], (self.turn + 1) % len(self.layers)
        out: tuple[torch.Tensor, None] = layer(*tensors, **keywords)
        return out


def attention(op: Attention, site: Site) -> None:
    """The child ``attn`` of the module at ``op.path``, with the plan's scale, window, cap and sinks."""
    module = site.root.get_submodule(op.path)
    ranks, rank = (site.ranks, site.rank) if op.split else (1, 0)
    if op.chunk is not None:
        whole_blocks(op, site)
    own = [stop - start for start, stop in (span(count, rank, ranks) for count in (op.heads, op.kv_heads))]
    extra: dict[str, Any] = {}
    if op.sinks is not None:
        extra["sinks"] = _sinks(module, op, span(op.heads, rank, ranks))
    if op.alibi is not None:
        extra["alibi_slopes"] = list(op.alibi[slice(*span(op.heads, rank, ranks))])
    layers = [
        InterfaceAttention(
            op,
            value_size=op.value_size,
            apart=site.apart,
            num_heads=own[0],
            head_size=kernel_head_size(max(op.head_size, op.value_size)),  # vLLM's have one size for both
            scale=op.scale,
            num_kv_heads=own[1],
            cache_config=cache_without_window(site.vllm_config.cache_config),
            quant_config=site.quant_config,
            logits_soft_cap=op.softcap,
            per_layer_sliding_window=op.window,
            prefix=cache_name(site.prefix(f"{op.path}.attn" + (f"_{turn}" if turn else ""))),
            **extra,
        )
        for turn in range(op.calls)
    ]
    module.attn = layers[0] if op.calls == 1 else Turns(layers)


def hfspeed_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, number: torch.Tensor
) -> torch.Tensor:
    """Attention of the layer ``number``, ``[]``: vLLM's own forward, on tensors as `_flat` lays them out.

    vLLM's operation is told a name, so that equal layers differ in compiled graphs. This one is told by a tensor.
    """
    layer = _NUMBERED[int(number)]
    out: torch.Tensor = Layer.forward(layer, query, key, value)
    return out


def _like_query(
    query: torch.Tensor,
    key: torch.Tensor,  # noqa: ARG001  one signature
    value: torch.Tensor,  # noqa: ARG001
    number: torch.Tensor,  # noqa: ARG001
) -> torch.Tensor:
    return torch.empty_like(query, memory_format=torch.contiguous_format)


_NUMBERED: weakref.WeakValueDictionary[int, InterfaceAttention] = weakref.WeakValueDictionary()
_COUNT = itertools.count()
ATTEND = operation(hfspeed_attention, _like_query)


def _numbered(layer: InterfaceAttention) -> torch.Tensor:
    """The number by which the operation finds ``layer``, ``[]``."""
    call_directly(layer)
    number = next(_COUNT)
    _NUMBERED[number] = layer
    return torch.tensor(number)


def _padded(tensor: torch.Tensor, size: int) -> torch.Tensor:
    """Heads of ``size``: zeros add nothing to a product, and what they give as values is cut off."""
    missing = size - tensor.shape[-1]
    return functional.pad(tensor, (0, missing)) if missing else tensor


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """``[1, heads, tokens, size]`` as ``[tokens, heads * size]``."""
    return tensor.transpose(1, 2).reshape(tensor.shape[2], -1)


def _sinks(module: nn.Module, op: Attention, own: tuple[int, int]) -> nn.Parameter:
    """The author's sinks as a parameter of this rank's heads, at the author's name."""
    start, stop = own
    parameter = nn.Parameter(torch.empty(stop - start, dtype=torch.get_default_dtype()), requires_grad=False)

    def load(param: nn.Parameter, loaded: torch.Tensor) -> None:
        param.data.copy_(loaded.reshape(-1)[start:stop])

    set_weight_attrs(parameter, {"weight_loader": load})
    setattr(module, str(op.sinks), parameter)
    return parameter


def _masked(op: Attention) -> Refusal:
    return Refusal(
        wanted="attention",
        reason=Reason.MASK_NOT_CAUSAL,
        found="the model hands its attention a mask of its own",
        module=op.path,
        help="build masks with transformers' mask functions, which make none for a serving backend",
    )
