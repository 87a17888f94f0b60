"""Tiny checkpoints with what eager transformers answers to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers

PROMPTS = [[3, 5, 7, 11, 13], [2 + 5 * i % 241 for i in range(23)], [3 + 7 * i % 251 for i in range(60)]]
TOKENS = 6
SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 250,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", {}),
    "llama_tied": ("LlamaForCausalLM", {"tie_word_embeddings": True}),
    "llama_one_kv": ("LlamaForCausalLM", {"num_key_value_heads": 1}),
    "qwen3": ("Qwen3ForCausalLM", {}),
    "qwen3_deep": ("Qwen3ForCausalLM", {"num_hidden_layers": 6}),
    "olmo2": ("Olmo2ForCausalLM", {"num_key_value_heads": 1}),
    "gemma2": (
        "Gemma2ForCausalLM",
        {
            "sliding_window": 16,
            "final_logit_softcapping": 4.0,
            "attn_logit_softcapping": 3.0,
            "query_pre_attn_scalar": 20,
        },
    ),
    "granite": (
        "GraniteForCausalLM",
        {
            "logits_scaling": 3.0,
            "embedding_multiplier": 1.7,
            "residual_multiplier": 0.8,
            "attention_multiplier": 0.21,
            "hidden_size": 128,
        },
    ),
    "mistral": ("MistralForCausalLM", {"sliding_window": 16}),
    "phi3": ("Phi3ForCausalLM", {"hidden_size": 128}),
    "starcoder2": ("Starcoder2ForCausalLM", {"hidden_size": 128, "sliding_window": None}),
    "minicpm3": (
        "MiniCPM3ForCausalLM",
        {"head_dim": 64, "num_key_value_heads": 4, "q_lora_rank": 48, "kv_lora_rank": 64, "qk_rope_head_dim": 64}
        | {"qk_nope_head_dim": 64, "v_head_dim": 64},
    ),
    "mixtral": ("MixtralForCausalLM", {"num_local_experts": 4}),
    "gpt_oss": (
        "GptOssForCausalLM",
        {"num_local_experts": 5, "intermediate_size": 64, "hidden_size": 128, "sliding_window": 16}
        | {"layer_types": ["full_attention", "sliding_attention"], "num_experts_per_tok": 2},
    ),
    "qwen3_moe": (
        "Qwen3MoeForCausalLM",
        {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "hidden_size": 128}
        | {"norm_topk_prob": True},
    ),
    "olmoe": ("OlmoeForCausalLM", {"num_experts": 8, "num_experts_per_tok": 2, "hidden_size": 128, "head_dim": ...}),
    "glm4_moe": (
        "Glm4MoeForCausalLM",
        {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "hidden_size": 128}
        | {"routed_scaling_factor": 1.8, "num_hidden_layers": 3},
    ),
    "deepseek_v3": (
        "DeepseekV3ForCausalLM",
        {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "hidden_size": 128}
        | {"routed_scaling_factor": 1.8, "num_hidden_layers": 3, "first_k_dense_replace": 1, "n_group": 2}
        | {"topk_group": 1, "q_lora_rank": 48, "kv_lora_rank": 64, "qk_rope_head_dim": 32, "qk_nope_head_dim": 32}
        | {"v_head_dim": 32, "num_key_value_heads": 4, "head_dim": ...},
    ),
    "blocks": (
        "Qwen3MoeForCausalLM",
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 256, "hidden_size": 256}
        | {"intermediate_size": 256, "head_dim": 64, "norm_topk_prob": True},
    ),
    "mamba2": (
        "Mamba2ForCausalLM",
        {"num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 2, "chunk_size": 16, "intermediate_size": ...},
    ),
    "bamba": (
        "BambaForCausalLM",
        {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_chunk_size": 16}
        | {"attn_layer_indices": [1]},
    ),
    "qwen3_next": (
        "Qwen3NextForCausalLM",
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32}
        | {"layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2, "hidden_size": 128}
        | {"linear_num_value_heads": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128},
    ),
    "bamba_deep": (
        "BambaForCausalLM",
        {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_chunk_size": 16}
        | {"attn_layer_indices": [1, 3], "num_hidden_layers": 4},
    ),
    "lfm2_deep": (
        "Lfm2ForCausalLM",
        {"layer_types": ["conv", "full_attention"] * 2, "norm_eps": 0.02, "num_hidden_layers": 4},
    ),
    "modernbert_decoder": (
        "ModernBertDecoderForCausalLM",
        {"hidden_size": 128, "local_attention": 32, "norm_eps": 0.02}
        | {"layer_types": ["full_attention", "sliding_attention"]},
    ),
    "lfm2": ("Lfm2ForCausalLM", {"layer_types": ["conv", "full_attention"], "norm_eps": 0.02}),
    "falcon_mamba": ("FalconMambaForCausalLM", {"state_size": 4, "intermediate_size": ...}),
}


def write(folder: Path, name: str) -> None:
    """Write ``folder``: config, weights in float32, and ``expected.json``."""
    architecture, changes = MODELS[name]
    model_class = getattr(transformers, architecture)
    # an ellipsis: this configuration has no such value
    config = model_class.config_class(**{n: value for n, value in (SMALL | changes).items() if value is not ...})
    config.architectures = [architecture]
    torch.manual_seed(0)
    # eager: the only implementation that applies every soft cap
    model = model_class._from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0, 0.08)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    (folder / "expected.json").write_text(json.dumps([_greedy(model, prompt) for prompt in PROMPTS]))


def adapter(folder: Path, checkpoint: Path) -> None:
    """Write a LoRA adapter for every linear of the layers."""
    from safetensors.torch import load_file, save_file

    torch.manual_seed(3)
    weights = load_file(checkpoint / "model.safetensors")
    linears = {name.removesuffix(".weight"): value for name, value in weights.items() if "_proj.weight" in name}
    tensors = {}
    for name, value in linears.items():
        tensors[f"base_model.model.{name}.lora_A.weight"] = torch.randn(8, value.shape[1]) * 0.1
        tensors[f"base_model.model.{name}.lora_B.weight"] = torch.randn(value.shape[0], 8) * 0.1
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    targets = sorted({name.rpartition(".")[2] for name in linears})
    config = {"peft_type": "LORA", "r": 8, "lora_alpha": 32, "target_modules": targets, "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config))


def in_blocks(folder: Path, checkpoint: Path) -> None:
    """Write the checkpoint with the layers' linears and experts in float8, one scale per block of 128 by 128."""
    from safetensors.torch import load_file, save_file

    tensors = {}
    for name, value in load_file(checkpoint / "model.safetensors").items():
        if "_proj.weight" not in name:
            tensors[name] = value.to(torch.bfloat16)
            continue
        blocks = value.unflatten(0, (-1, 128)).unflatten(2, (-1, 128))
        scale = blocks.abs().amax((1, 3), keepdim=True) / 448
        tensors[name] = (blocks / scale).flatten(2, 3).flatten(0, 1).to(torch.float8_e4m3fn)
        tensors[f"{name}_scale_inv"] = scale[:, 0, :, 0].contiguous().float()
    config = json.loads((checkpoint / "config.json").read_text())
    config["dtype"] = "bfloat16"
    config["quantization_config"] = {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": ["lm_head", *(f"model.layers.{n}.mlp.gate" for n in range(2))],
    }
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "expected.json").write_text((checkpoint / "expected.json").read_text())


def quantised(folder: Path, checkpoint: Path) -> None:
    """Write the checkpoint with the layers' linears in int8, one scale per row."""
    from safetensors.torch import load_file, save_file

    tensors = {}
    for name, value in load_file(checkpoint / "model.safetensors").items():
        if "_proj.weight" not in name:
            tensors[name] = value.to(torch.bfloat16)
            continue
        scale = value.abs().amax(1, keepdim=True) / 127
        tensors[name] = (value / scale).round().to(torch.int8)
        tensors[f"{name}_scale"] = scale.to(torch.bfloat16)
    number = {"num_bits": 8, "type": "int", "symmetric": True}
    group = {
        "targets": ["Linear"],
        "weights": number | {"strategy": "channel", "dynamic": False},
        "input_activations": number | {"strategy": "token", "dynamic": True},
    }
    config = json.loads((checkpoint / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": group},
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "expected.json").write_text((checkpoint / "expected.json").read_text())
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@torch.no_grad()
def _greedy(model: Any, prompt: list[int]) -> dict[str, Any]:
    from hfspeed.reference.asking import asked, scores

    ids, tokens, logprobs = list(prompt), [], []
    for _ in range(TOKENS):
        found = scores(model(**asked(model, torch.tensor([ids]))))[0, -1].double().log_softmax(-1)
        token = int(found.argmax())
        ids.append(token)
        tokens.append(token)
        logprobs.append(float(found[token]))
    return {"prompt": prompt, "tokens": tokens, "logprobs": logprobs}
