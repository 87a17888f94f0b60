"""Plans of real families written by hand, with the modules that would be emitted for them."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
import types
from dataclasses import replace

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from hfspeed.plan import (
    Attention,
    Column,
    Embed,
    Forward,
    Gated,
    Head,
    Heads,
    Norm,
    Plan,
    Row,
    Stacked,
    Stages,
    Tie,
    Weight,
    Wrapper,
)
from hfspeed.planner.build import build as build_author
from hfspeed.planner.build import randomise

SIZES = {
    "hidden_size": 48, "intermediate_size": 40, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 12, "vocab_size": 61, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
EXTRA = {
    "llama": {"attention_bias": True},
    "gemma2": {"sliding_window": 5, "query_pre_attn_scalar": 20, "attn_logit_softcapping": 3.0,
               "final_logit_softcapping": 2.0, "hidden_activation": "gelu_pytorch_tanh"},
    "olmo2": {},
    "gpt_oss": {},
}  # fmt: skip


def author(family: str, dtype: torch.dtype = torch.float64, **changes):
    """The author's small model with random weights."""
    config = AutoConfig.for_model(family, **(SIZES | EXTRA[family] | changes))
    kind = AutoModelForCausalLM._model_mapping[type(config)]
    model = build_author(kind, config, device="cpu", dtype=dtype)
    randomise(model)
    return model


def emitted(model, plan: Plan) -> types.ModuleType:
    """The module that emit would write."""
    source = sys.modules[plan.module]
    made = types.ModuleType(f"hand_{plan.architecture}")
    vars(made).update({name: value for name, value in vars(source).items() if not name.startswith("__")})
    for forward in plan.forwards:
        body = textwrap.indent(forward.text, "    ")
        base = getattr(source, forward.base)
        space = {**vars(made), "author_class": base}
        exec(f"class {forward.name}(author_class):\n{body}", space)  # the module's whole purpose
        setattr(made, forward.name, space[forward.name])
    return made


def plan_of(family: str, model) -> Plan:
    """The plan that the planner should come to."""
    config, module = model.config, type(model).__module__
    stem = type(model).__name__.removesuffix("ForCausalLM")
    count, size, ff = config.num_hidden_layers, config.hidden_size, config.intermediate_size
    heads, kv, width = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    bias = bool(getattr(config, "attention_bias", False))
    norm = "one_plus" if family == "gemma2" else "plain"
    act = "gelu_tanh" if family == "gemma2" else "silu"
    ops = [Embed("model.embed_tokens", config.vocab_size, size, size**0.5 if family == "gemma2" else 1.0)]
    for layer in range(count):
        at = f"model.layers.{layer}"
        first = model.model.layers[layer]
        window = getattr(first.self_attn, "sliding_window", None)
        ops += [
            Attention(f"{at}.self_attn", heads, kv, width, width, first.self_attn.scaling, window,
                      getattr(config, "attn_logit_softcapping", None)),
            Heads(f"{at}.self_attn.qkv_proj", ("q_proj", "k_proj", "v_proj"),
                  size, heads, kv, width, width, bias, True),
            Row(f"{at}.self_attn.o_proj", heads * width, size, bias),
            Stacked(f"{at}.mlp.gate_up_proj", ("gate_proj", "up_proj"), size, (ff, ff), False, True),
            Gated(f"{at}.mlp.act_and_mul", act),
            Row(f"{at}.mlp.down_proj", ff, size, False),
        ]  # fmt: skip
        if family == "olmo2":
            ops += [Norm(f"{at}.self_attn.q_norm", heads * width, config.rms_norm_eps, norm, heads),
                    Norm(f"{at}.self_attn.k_norm", kv * width, config.rms_norm_eps, norm, kv)]  # fmt: skip
        ops += [Norm(f"{at}.{name}", size, config.rms_norm_eps, norm)
                for name, _ in first.named_children() if name.endswith("layernorm")]  # fmt: skip
    ops += [Norm("model.norm", size, config.rms_norm_eps, norm), Head("lm_head", config.vocab_size, size, False)]
    tied = (Tie("lm_head.weight", "model.embed_tokens.weight"),) if config.tie_word_embeddings else ()
    return Plan(
        architecture=type(model).__name__,
        module=module,
        size=size,
        ops=tuple(ops),
        weights=_weights(model, {tie.source for tie in tied}),
        ties=tied,
        forwards=_forwards(stem, module, count, family),
        wrapper=Wrapper("model", ("input_ids", "position_ids", "inputs_embeds"), "lm_head"),
        stages=Stages("model", "model.layers", count, "hidden_states", tuple_output=False,
                      first=("model.embed_tokens",), last=("model.norm",)),
        tensor=True,
    )  # fmt: skip


FUSED = {"q_proj": ("qkv_proj", 0), "k_proj": ("qkv_proj", 1), "v_proj": ("qkv_proj", 2),
         "gate_proj": ("gate_up_proj", 0), "up_proj": ("gate_up_proj", 1)}  # fmt: skip


def _weights(model, tied) -> tuple[Weight, ...]:
    found = []
    for name in model.state_dict():
        if name in tied:
            continue
        pieces = name.split(".")
        part = None
        if pieces[-2] in FUSED:
            pieces[-2], part = FUSED[pieces[-2]]
        found.append(Weight(name, ".".join(pieces), part))
    return tuple(found)


def _forwards(stem: str, module: str, count: int, family: str) -> tuple[Forward, ...]:
    source = sys.modules[module]
    attention = _text(getattr(source, f"{stem}Attention").forward)
    for letter in "qkv":
        attention = attention.replace(f"self.{letter}_proj(hidden_states)", f"{letter}_proj")
    split = "q_proj, k_proj, v_proj = self.qkv_proj(hidden_states).split(self.qkv_proj_sizes, dim=-1)"
    attention = attention.replace("query_states =", f"{split}\n    query_states =", 1)
    mlp = "def forward(self, x):\n    return self.down_proj(self.act_and_mul(self.gate_up_proj(x)))\n"
    decoder = _text(getattr(source, f"{stem}Model").forward).replace("@auto_docstring\n", "")
    for before, after in (
        (r"(    \*\*kwargs:)", r"    intermediate=None,\n\1"),
        (r"(    for .*_layer in)", r"    if intermediate is not None:\n        hidden_states = intermediate\n\1"),
        (r"(    hidden_states = self\.norm)", r"    if self.hands_on:\n        return hidden_states\n\1"),
    ):
        decoder = re.sub(before, after, decoder, count=1)
    layers = [f"model.layers.{layer}" for layer in range(count)]
    return (
        Forward(f"{stem}Attention", module, f"{stem}Attention", attention, ("q_proj + k_proj + v_proj -> qkv_proj",),
                tuple(f"{at}.self_attn" for at in layers), ("qkv_proj", "qkv_proj_sizes")),
        Forward(f"{stem}MLP", module, f"{stem}MLP", mlp,
                ("gate_proj + up_proj -> gate_up_proj", "act_fn(gate) * up -> act_and_mul"),
                tuple(f"{at}.mlp" for at in layers), ("gate_up_proj", "act_and_mul")),
        Forward(f"{stem}Model", module, f"{stem}Model", decoder, ("stages",), ("model",), ("hands_on",)),
    )  # fmt: skip


def unfused(plan: Plan) -> Plan:
    """The same model with every linear for itself; only the decoder is rewritten."""
    ops = []
    for op in plan.ops:
        above = op.path.rpartition(".")[0]
        match op:
            case Heads():
                units = (op.heads, op.kv_heads, op.kv_heads)
                ops += [Column(f"{above}.{part}", op.inputs, unit * op.head_size, op.bias, unit)
                        for part, unit in zip(op.parts, units, strict=True)]  # fmt: skip
            case Stacked():
                ops += [Column(f"{above}.{part}", op.inputs, size, op.bias, size)
                        for part, size in zip(op.parts, op.sizes, strict=True)]  # fmt: skip
            case Gated():
                continue
            case _:
                ops.append(op)
    forwards = tuple(forward for forward in plan.forwards if forward.promised == ("hands_on",))
    weights = tuple(Weight(weight.source, weight.source) for weight in plan.weights)
    return replace(plan, ops=tuple(ops), weights=weights, forwards=forwards)


def _text(function) -> str:
    return textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
