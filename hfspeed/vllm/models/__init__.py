"""The classes vLLM loads: those that serve, and one for every other backend name, which refuses.

A package, so that vLLM's model-info cache, which hashes the package, sees every file of it. The names are
vLLM's: it compares them to know that the transformers backend is in use.
"""

from __future__ import annotations

from typing import Any

from hfspeed.vllm.models.causal import TransformersForCausalLM
from hfspeed.vllm.models.mixture import TransformersMoEForCausalLM
from hfspeed.vllm.models.recurrent import TransformersAttentionFreeForCausalLM, TransformersHybridForCausalLM
from hfspeed.vllm.models.refusing import refusing

__all__ = [
    "TransformersAttentionFreeForCausalLM",
    "TransformersForCausalLM",
    "TransformersHybridForCausalLM",
    "TransformersMoEForCausalLM",
]


def __getattr__(name: str) -> Any:
    """Any other backend name is a class that says why it does not start."""
    if not name.startswith("Transformers"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    cls = refusing(name)
    globals()[name] = cls
    return cls
