"""Every configuration class of transformers with a plan written by hand, and the language model that it is for."""

from __future__ import annotations

import functools
import importlib
import inspect
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from hfspeed.plan.styles import KINDS, attribute
from hfspeed.planner.load import Subject, load

TURNED = {"rope_type": "default", "rope_theta": 10000.0}
MISSING: dict[str, dict[str, Any]] = {
    "CohereCompassTextConfig": {"rope_parameters": {"full_attention": TURNED, "sliding_attention": TURNED}},
    "DeepseekV2Config": {"num_experts_per_tok": 6, "n_group": 1, "topk_group": 1},
    "DiffusionGemmaTextConfig": {"num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 704},
    "Dots1Config": {"n_routed_experts": 128, "num_experts_per_tok": 8, "n_shared_experts": 2},
    "HunYuanMoEV1Config": {"head_dim": 128},
    "Lfm2MoeConfig": {"layer_types": ["conv", "full_attention"] * 16},
    "MinistralConfig": {"head_dim": 128},
    "Qwen3OmniMoeTextConfig": {"head_dim": 128},
    "Qwen4ExpTextConfig": {
        "indexer_n_heads": 4,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 256,
        "indexer_budget": 2048,
        "indexer_compress_ratio": 64,
    },
    "Step3p7TextConfig": {"sliding_window": 512},
    "T5Gemma2DecoderConfig": {"dropout_rate": 0.0},
    "T5Gemma2TextConfig": {"dropout_rate": 0.0},
    "Qwen3OmniMoeTalkerTextConfig": {"head_dim": 128, "shared_expert_intermediate_size": 768},
    "DeepseekOcr2TextConfig": {
        "mlp_layer_types": ["dense"] + ["sparse"] * 31,
        "num_experts_per_tok": 6,
        "n_group": 1,
        "topk_group": 1,
    },
    "Gemma4TextConfig": {
        "enable_moe_block": True,
        "num_experts": 8,
        "top_k_experts": 2,
        "moe_intermediate_size": 704,
    },
    "Glm4vMoeTextConfig": {"head_dim": 128},
    "Glm4vTextConfig": {"rope_parameters": {**TURNED, "mrope_section": [16, 24, 24]}},
    "GlmImageTextConfig": {"rope_parameters": {**TURNED, "mrope_section": [16, 24, 24]}},
}
"""What a default configuration lacks: without it, its author's code does not build or run, or has no experts."""
WIDTHS = {"EmbeddingGemma2TextConfig": "embedding_dim"}
"""What a base model gives, where that is not ``hidden_size``."""
FURTHER = {"VoxtralRealtimeTextConfig": {"t_cond": (1,)}, "T5Gemma2DecoderConfig": {"encoder_hidden_states": (1, 5)}}
"""What a base model is given beside tokens by the model it is a part of, and how many rows; here always the same."""


def configurations() -> dict[str, type[Any]]:
    """Name -> class, of those that declare a plan of any kind."""
    for name in list(CONFIG_MAPPING.keys()):
        CONFIG_MAPPING[name]
    found = {cls.__name__: cls for cls in _below(PreTrainedConfig) if cls.__module__.startswith("transformers.models.")}
    return {
        name: cls for name, cls in sorted(found.items()) if any(getattr(cls, attribute(kind), None) for kind in KINDS)
    }


def _below(cls: type[Any]) -> Iterator[type[Any]]:
    for one in cls.__subclasses__():
        yield one
        yield from _below(one)


class OutOfScope(Exception):
    """There is no decoder that a table of tokens feeds; the message says what there is instead."""


def subject(config_class: type[Any]) -> Subject:
    """The causal language model of a configuration class at its default size.

    A text model that only larger models use gets an output projection here, which is all that it lacks.

    Raises:
        OutOfScope: it is of no language model.
    """
    kind = config_class.model_type
    if kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind in CONFIG_MAPPING:
        found = load(kind)
        if type(found.config) is config_class:
            missing = MISSING.get(config_class.__name__)
            return replace(found, config=config_class(**missing)) if missing else found
    parts = [part.__name__ for part in (getattr(config_class, "sub_configs", None) or {}).values()]
    if parts:
        told = f"a model made of several ({', '.join(parts)}), each with a configuration and a plan of its own"
        raise OutOfScope(told)
    base = next((base for cls in config_class.__mro__[:2] if (base := _base_class(cls)) is not None), None)
    config = config_class(**MISSING.get(config_class.__name__, {}))
    if not hasattr(config, "vocab_size"):
        raise OutOfScope("its model reads no tokens: the configuration has no vocabulary")
    if base is None:
        raise OutOfScope("no model class takes it and token ids: it is a part inside of another model")
    with torch.device("meta"):
        model = base(config)
    try:
        table = model.get_input_embeddings()
    except NotImplementedError:
        table = None
    if not isinstance(table, nn.Embedding):
        raise OutOfScope("its model has a table of tokens for each of several codes, and no one table that feeds it")
    return Subject(kind, None, config, _headed(base, config_class), Path(inspect.getfile(base)))


def _base_class(config_class: type[Any]) -> type[Any] | None:
    name = config_class.__module__.replace(".configuration_", ".modeling_")
    try:
        module = importlib.import_module(name)
    except ImportError:
        return None
    fitting = [
        cls
        for cls in vars(module).values()
        if isinstance(cls, type) and issubclass(cls, PreTrainedModel) and cls.__module__ == name
        and _takes(cls, config_class) and "input_ids" in inspect.signature(cls.forward).parameters
        and "For" not in cls.__name__
    ]  # fmt: skip
    own = [cls for cls in fitting if cls.config_class is config_class]
    return next(iter(sorted(own or fitting, key=lambda cls: len(cls.__name__))), None)


def _takes(cls: type[Any], config_class: type[Any]) -> bool:
    said = inspect.signature(cls.__init__).parameters.get("config")
    named = getattr(said, "annotation", None)
    return named in (config_class, config_class.__name__) or cls.config_class is config_class


def _fed(base: type[Any], further: dict[str, tuple[int, ...]]) -> type[Any]:
    """``base``, given the same of what is ``further``, by name and rows, whenever it is called."""

    class Fed(base):  # type: ignore[misc]
        @functools.wraps(base.forward)
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            weight = next(self.parameters())
            shapes = {name: (*rows, self.config.hidden_size) for name, rows in further.items()}
            made = {
                name: torch.linspace(-1, 1, math.prod(shape), device=weight.device, dtype=weight.dtype).view(shape)
                for name, shape in shapes.items()
            }
            return super().forward(*args, **made, **kwargs)

    return Fed


def _headed(base: type[Any], own: type[Any]) -> type[Any]:
    """A causal language model around ``base``."""
    inner = _fed(base, FURTHER[own.__name__]) if own.__name__ in FURTHER else base
    parent = next(cls for cls in base.__mro__[1:] if issubclass(cls, PreTrainedModel))

    class Headed(parent, GenerationMixin):  # type: ignore[misc, valid-type]
        base_model_prefix = "model"
        config_class = own
        _tied_weights_keys = None
        _tp_plan = {"lm_head": "colwise_gather_output"}  # noqa: RUF012  transformers' own form

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.model = inner(config)
            width = getattr(config, WIDTHS.get(type(config).__name__, "hidden_size"))
            self.lm_head = nn.Linear(width, config.vocab_size, bias=False)
            self.post_init()

        def get_input_embeddings(self) -> nn.Module:
            return self.model.get_input_embeddings()

        def get_output_embeddings(self) -> nn.Module:
            return self.lm_head

        def forward(
            self, input_ids: Any = None, inputs_embeds: Any = None, use_cache: bool | None = None
        ) -> CausalLMOutputWithPast:
            output = self.model(input_ids=input_ids, inputs_embeds=inputs_embeds, use_cache=use_cache)
            return CausalLMOutputWithPast(logits=self.lm_head(output[0]))

    return Headed
