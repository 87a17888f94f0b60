"""The tensors of a checkpoint for arithmetic: from headers, whatever form they are stored in."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from hfspeed.errors import UsageError
from hfspeed.plan import Plan
from hfspeed.plan.holdings import Holding, holdings
from hfspeed.plan.places import Layout
from hfspeed.plan.tensors import BITS
from hfspeed.planner.load import Subject, load
from hfspeed.planner.serve import planned
from hfspeed.planner.sources import NAMES, quantised, sources

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
}
MIXTURE = LLAMA | {
    "model_type": "mixtral",
    "architectures": ["MixtralForCausalLM"],
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}
Header = dict[str, tuple[str, tuple[int, ...]]]


def write(folder: Path, config: dict[str, Any], header: Header) -> Subject:
    """A folder with a configuration and a file of empty tensors: only the header is ever read."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    entries, end = {}, 0
    for name, (kind, shape) in header.items():
        start = end
        size = BITS[NAMES[kind]]
        for one in shape:
            size *= one
        end += size // 8
        entries[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(entries).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    return load(str(folder))


def plain(kind: str, config: dict[str, Any] = LLAMA) -> Header:
    """What the author's state dict would be stored as."""
    width, inner, half = config["hidden_size"], config["intermediate_size"], config["hidden_size"] // 2
    found: Header = {"model.embed_tokens.weight": (kind, (128, width)), "model.norm.weight": (kind, (width,))}
    found["lm_head.weight"] = (kind, (128, width))
    for layer in range(2):
        at = f"model.layers.{layer}"
        shapes = {
            "self_attn.q_proj": (width, width), "self_attn.k_proj": (half, width), "self_attn.v_proj": (half, width),
            "self_attn.o_proj": (width, width), "input_layernorm": (width,), "post_attention_layernorm": (width,),
        }  # fmt: skip
        if config is LLAMA:
            shapes |= {"mlp.gate_proj": (inner, width), "mlp.up_proj": (inner, width), "mlp.down_proj": (width, inner)}
        found |= {f"{at}.{name}.weight": (kind, shape) for name, shape in shapes.items()}
    return found


def one_rank(subject: Subject, ranks: int = 1, dtype: str = "auto") -> tuple[Plan, Holding, Any]:
    plan, _ = planned(subject)
    found = sources(subject, plan, dtype)
    (held,) = holdings(plan, found, Layout(ranks)).held
    return plan, held, found


PARAMETERS = 2 * 128 * 64 + 64 + 2 * (64 * 64 * 2 + 32 * 64 * 2 + 3 * 96 * 64 + 2 * 64)


@pytest.mark.parametrize(
    ("stored", "said", "asked", "served"),
    [
        ("BF16", None, "auto", "bfloat16"),
        ("F16", None, "auto", "float16"),
        ("F32", None, "auto", "bfloat16"),
        ("BF16", "float16", "auto", "float16"),
        ("BF16", "float32", "auto", "bfloat16"),
        ("F32", None, "float32", "float32"),
    ],
)
def test_the_dtype_that_is_served(tmp_path: Path, stored: str, said: str | None, asked: str, served: str) -> None:
    config = LLAMA | ({"dtype": said} if said else {})
    _, held, found = one_rank(write(tmp_path / "model", config, plain(stored)), dtype=asked)
    assert found.dtype == served
    assert held.parameters == PARAMETERS
    assert dict(held.weights) == {served: PARAMETERS * BITS[served] // 8}
    assert found.disk == PARAMETERS * BITS[NAMES[stored]] // 8
    assert found.lost == 0


def test_a_configuration_alone(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA), "utf-8")
    _, held, found = one_rank(load(str(folder)))
    assert (found.dtype, found.disk, held.parameters) == ("bfloat16", 0, PARAMETERS)
    with pytest.raises(UsageError, match="--dtype takes auto, float64"):
        one_rank(load(str(folder)), dtype="int8")


def test_a_prefix_that_is_left_off(tmp_path: Path) -> None:
    header = {name.removeprefix("model."): entry for name, entry in plain("F16").items()}
    _, held, found = one_rank(write(tmp_path / "model", LLAMA, header))
    assert (found.lost, found.dtype, held.parameters) == (0, "float16", PARAMETERS)


def scaled_blocks(header: Header, block: int) -> Header:
    """Matrices of the layers in eight bits, a scale in float32 for every block."""
    found: Header = {}
    for name, (kind, shape) in header.items():
        if "layers" in name and len(shape) == 2:
            found[name] = ("F8_E4M3", shape)
            found[f"{name}_scale_inv"] = ("F32", (-(-shape[0] // block), -(-shape[1] // block)))
        else:
            found[name] = (kind, shape)
    return found


def test_eight_bits_in_blocks(tmp_path: Path) -> None:
    quantisation = {"quant_method": "fp8", "weight_block_size": [32, 32]}
    config = LLAMA | {"dtype": "bfloat16", "quantization_config": quantisation}
    subject = write(tmp_path / "model", config, scaled_blocks(plain("BF16"), 32))
    plan, held, found = one_rank(subject)
    matrices = 2 * (64 * 64 * 2 + 32 * 64 * 2 + 3 * 96 * 64)
    kinds = {"float8_e4m3": matrices, "bfloat16": 2 * (PARAMETERS - matrices), "float32": 4 * matrices // 32**2}
    assert dict(held.weights) == kinds
    assert held.parameters == PARAMETERS
    assert (found.group, found.lost) == ((32, 32), 0)
    _, half, _ = one_rank(subject, ranks=2)
    assert dict(half.weights)["float8_e4m3"] == matrices // 2
    assert "model.layers.0.self_attn.qkv_proj" in quantised(plan, found)
    assert "lm_head" not in quantised(plan, found)


def test_four_bits_in_groups(tmp_path: Path) -> None:
    """GPTQ: numbers packed into words, scales and zeros by group, and the group of each input."""
    header: Header = {}
    for name, (kind, shape) in plain("F16").items():
        if "layers" in name and len(shape) == 2:
            module, (outputs, inputs) = name.removesuffix(".weight"), shape
            header[f"{module}.qweight"] = ("I32", (inputs // 8, outputs))
            header[f"{module}.qzeros"] = ("I32", (inputs // 32, outputs // 8))
            header[f"{module}.scales"] = ("F16", (inputs // 32, outputs))
            header[f"{module}.g_idx"] = ("I32", (inputs,))
        else:
            header[name] = (kind, shape)
    quantisation = {"quant_method": "gptq", "bits": 4, "group_size": 32}
    config = LLAMA | {"dtype": "float16", "quantization_config": quantisation}
    _, held, found = one_rank(write(tmp_path / "model", config, header))
    matrices = 2 * (64 * 64 * 2 + 32 * 64 * 2 + 3 * 96 * 64)
    groups = 2 * 4 * (6 * 64 + 96)  # an index for each input of seven matrices, of which one has other inputs
    assert dict(held.weights)["int32"] == matrices // 2 + matrices // 32 // 2 + groups
    assert dict(held.weights)["float16"] == 2 * (PARAMETERS - matrices) + 2 * matrices // 32
    assert (held.parameters, found.group, found.lost) == (PARAMETERS, (32, 1), 0)


def experts(kind: str, scaled: bool = False) -> Header:
    """Mixtral's own names: one matrix for each expert and role."""
    found = plain("BF16", MIXTURE)
    for layer in range(2):
        at = f"model.layers.{layer}.block_sparse_moe"
        found[f"{at}.gate.weight"] = ("BF16", (4, 64))
        for number in range(4):
            for name, shape in {"w1": (96, 64), "w2": (64, 96), "w3": (96, 64)}.items():
                found[f"{at}.experts.{number}.{name}.weight"] = (kind, shape)
                if scaled:
                    blocks = (shape[0] // 32, shape[1] // 32)
                    found[f"{at}.experts.{number}.{name}.weight_scale_inv"] = ("F32", blocks)
    return found


def test_experts_one_by_one(tmp_path: Path) -> None:
    _, held, found = one_rank(write(tmp_path / "model", MIXTURE, experts("BF16")))
    assert found.lost == 0
    assert dict(held.weights) == {"bfloat16": 2 * held.parameters}
    assert held.parameters == PARAMETERS + 2 * (4 * 64 + 3 * 3 * 96 * 64)


def test_quantised_experts_one_by_one(tmp_path: Path) -> None:
    quantisation = {"quant_method": "fp8", "weight_block_size": [32, 32]}
    config = MIXTURE | {"dtype": "bfloat16", "quantization_config": quantisation}
    subject = write(tmp_path / "model", config, experts("F8_E4M3", scaled=True))
    plan, held, found = one_rank(subject)
    matrices = 2 * 4 * 3 * 96 * 64
    assert dict(held.weights)["float8_e4m3"] == matrices
    assert dict(held.weights)["float32"] == 4 * matrices // 32**2
    assert found.lost == 0
    assert quantised(plan, found) == {f"model.layers.{layer}.mlp.experts" for layer in range(2)}
    few = holdings(plan, found, Layout(1, 1, 4)).held[0]
    assert dict(few.weights)["float8_e4m3"] == matrices // 4


def test_what_belongs_to_nothing(tmp_path: Path) -> None:
    others: Header = {"vision.tower.weight": ("BF16", (9, 9)), "model.layers.9.mlp.up_proj.weight": ("BF16", (1,))}
    _, held, found = one_rank(write(tmp_path / "model", LLAMA, plain("BF16") | others))
    assert (found.lost, held.parameters) == (2, PARAMETERS)
