"""A llama's plan, written by hand."""

from __future__ import annotations

from hfspeed.plan import (
    Attention,
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

MODULE = "transformers.models.llama.modeling_llama"


def plan(config) -> Plan:
    hidden, inner, vocab = config.hidden_size, config.intermediate_size, config.vocab_size
    heads, kv, size = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    ops: list = [Embed("model.embed_tokens", vocab, hidden)]
    weights = [_kept("model.embed_tokens.weight")]
    layers = [f"model.layers.{index}" for index in range(config.num_hidden_layers)]
    for layer in layers:
        a, m = f"{layer}.self_attn", f"{layer}.mlp"
        ops += [
            Heads(f"{a}.qkv_proj", ("q_proj", "k_proj", "v_proj"), hidden, heads, kv, size, size, False, True),
            Attention(a, heads, kv, size, size, size**-0.5),
            Row(f"{a}.o_proj", heads * size, hidden, False),
            Stacked(f"{m}.gate_up_proj", ("gate_proj", "up_proj"), hidden, (inner, inner), False, True),
            Gated(f"{m}.act_and_mul", "silu"),
            Row(f"{m}.down_proj", inner, hidden, False),
            Norm(f"{layer}.input_layernorm", hidden, config.rms_norm_eps, "plain"),
            Norm(f"{layer}.post_attention_layernorm", hidden, config.rms_norm_eps, "plain"),
        ]
        weights += [_part(a, name, "qkv_proj", part) for part, name in enumerate(("q_proj", "k_proj", "v_proj"))]
        weights += [_part(m, name, "gate_up_proj", part) for part, name in enumerate(("gate_proj", "up_proj"))]
        weights += [
            _kept(f"{layer}.{name}.weight")
            for name in ("self_attn.o_proj", "mlp.down_proj", "input_layernorm", "post_attention_layernorm")
        ]
    ops += [Norm("model.norm", hidden, config.rms_norm_eps, "plain"), Head("lm_head", vocab, hidden, False)]
    weights.append(_kept("model.norm.weight"))
    ties = ()
    if config.tie_word_embeddings:
        ties = (Tie("lm_head.weight", "model.embed_tokens.weight"),)
    else:
        weights.append(_kept("lm_head.weight"))
    forwards = (
        _forward("LlamaAttention", tuple(f"{layer}.self_attn" for layer in layers), "q + k + v -> qkv_proj"),
        _forward("LlamaMLP", tuple(f"{layer}.mlp" for layer in layers), "gate + up -> gate_up_proj"),
        _forward("LlamaModel", ("model",), "stages"),
    )
    stages = Stages(
        "model", "model.layers", len(layers), "hidden_states", False, ("model.embed_tokens",), ("model.norm",)
    )
    wrapper = Wrapper("model", ("input_ids", "position_ids", "inputs_embeds"), "lm_head")
    return Plan(
        "LlamaForCausalLM", MODULE, hidden, tuple(ops), tuple(weights), ties, forwards, wrapper, stages, True
    )


def _kept(name: str) -> Weight:
    return Weight(name, name)


def _part(above: str, source: str, target: str, part: int) -> Weight:
    return Weight(f"{above}.{source}.weight", f"{above}.{target}.weight", part)


def _forward(name: str, paths: tuple[str, ...], note: str) -> Forward:
    return Forward(name, MODULE, name, "", (note,), paths, ())
