"""Attention whose tokens see only their own chunk of positions, by vLLM's backend for it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from vllm.model_executor.layers.attention.chunked_local_attention import create_chunked_local_attention_backend
from vllm.v1.attention.selector import get_attn_backend
from vllm.v1.kv_cache_interface import ChunkedLocalAttentionSpec

from hfspeed.errors import RefusedError
from hfspeed.plan import Attention
from hfspeed.refusal import Reason, Refusal
from hfspeed.vllm.site import Site

BLOCKS = (128, 64, 32, 16)
"""Sizes of a block that may be asked for."""


def whole_blocks(op: Attention, site: Site) -> None:
    """Refuse chunks that end inside a block of the cache.

    Raises:
        RefusedError: they do; the refusal says with which option they do not.
    """
    chunk, block = op.chunk, site.vllm_config.cache_config.block_size
    if chunk is None or not block or not chunk % block:
        return
    sizes = [size for size in BLOCKS if not chunk % size]
    found = f"it attends in chunks of {chunk}, and a block of the cache has {block} tokens"
    help_ = f"start with --block-size {sizes[0]}" if sizes else f"make chunks a multiple of {BLOCKS[-1]}"
    no = Refusal("attention", Reason.DOES_NOT_DIVIDE, found, op.path, help=help_)
    raise RefusedError(type(site.root).__name__, (no,))


def chunked_backend(head_size: int, chunk: int, cache_config: Any) -> Any:
    """The attention backend of this platform, for layers whose tokens see only their own ``chunk`` of positions."""
    kept = cache_config.cache_dtype if cache_config is not None else "auto"
    return create_chunked_local_attention_backend(get_attn_backend(head_size, torch.get_default_dtype(), kept), chunk)


def chunked_cache(spec: Any, chunk: int) -> Any:
    """The same as ``spec``, that of a layer that sees everything, for one that attends in chunks."""
    shared = {one.name: getattr(spec, one.name) for one in fields(ChunkedLocalAttentionSpec) if hasattr(spec, one.name)}
    return ChunkedLocalAttentionSpec(**{**shared, "attention_chunk_size": chunk})
