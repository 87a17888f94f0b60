"""A tiny checkpoint of any causal language model that transformers ships, by its model type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import checkpoints
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

LAYERS = 4
SIZES: dict[str, Any] = checkpoints.SMALL | {
    "hidden_size": 128,
    "num_hidden_layers": LAYERS,
    "sliding_window": 32,
}
LOUD = {
    "logits_scaling": 3.0,
    "logit_scale": 0.4,
    "embedding_multiplier": 1.7,
    "residual_multiplier": 0.8,
    "attention_multiplier": 0.21,
    "query_pre_attn_scalar": 20,
    "final_logit_softcapping": 4.0,
    "attn_logit_softcapping": 3.0,
    "rms_norm_eps": 0.02,
    "layer_norm_eps": 0.02,
    "norm_eps": 0.02,
}
"""Multipliers, caps and epsilons that show in the answer when somebody drops them."""


def describe(model_type: str) -> tuple[str, dict[str, Any]]:
    """The architecture of a family, and the values its default configuration is made small and loud with."""
    default = CONFIG_MAPPING[model_type]()
    renamed = type(default).attribute_map
    changes: dict[str, Any] = {}
    for name, value in (SIZES | LOUD).items():
        name = renamed.get(name, name)
        old = getattr(default, name, None)
        if old is None and name not in {"head_dim", "num_key_value_heads"}:
            continue
        computed = getattr(type(default), name, None)
        if isinstance(computed, property) and computed.fset is None:
            changes[name] = ...
        elif hasattr(default, name):
            changes[name] = value
    kinds = getattr(default, "layer_types", None)
    if kinds:
        distinct = list(dict.fromkeys(kinds))
        changes["layer_types"] = (distinct * LAYERS)[:LAYERS]
    if getattr(default, "is_decoder", None) is False:
        changes["is_decoder"] = True
    if hasattr(default, "decoder_layers"):
        changes |= {"decoder_layers": LAYERS, "decoder_attention_heads": 8, "decoder_ffn_dim": 96, "encoder_layers": 1}
    for name, value in vars(default).items():
        if isinstance(value, list) and len(value) == default.num_hidden_layers and name != "layer_types":
            changes[name] = value[:LAYERS]
    return MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model_type], changes


def write(folder: Path, model_type: str) -> None:
    """Write ``folder``: config, weights in float32, and what eager transformers answers."""
    checkpoints.MODELS[model_type] = describe(model_type)
    checkpoints.write(folder, model_type)
