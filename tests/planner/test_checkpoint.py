"""What names on disk mean, and whether they fill the model exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from hfspeed.errors import CheckpointError
from hfspeed.planner.build import build
from hfspeed.planner.checkpoint import check, resolver, ties
from hfspeed.planner.load import load
from hfspeed.planner.safetensors import stored
from hfspeed.planner.shrink import shrink

SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 64,
}
FAMILIES = ("bloom", "cohere2", "gemma3n_text", "gpt2", "gpt_neox", "gptj", "llama", "opt", "phi3")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def _saved(folder: Path, **values: Any) -> LlamaConfig:
    config = LlamaConfig(**SMALL, **values)
    build(LlamaForCausalLM, config, device="cpu").save_pretrained(folder)
    return config


def _rewrite(folder: Path, change: Any) -> None:
    file = folder / "model.safetensors"
    tensors = load_file(file)
    save_file(change(tensors) or tensors, file)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_transformers_saves_fills_its_model(family: str, tmp_path: Path) -> None:
    subject = load(family)
    small = shrink(subject.config, subject.model_class, layers=2)
    build(subject.model_class, small, device="cpu").save_pretrained(tmp_path)
    filled = check(tmp_path, subject.model_class, small)
    tied = ties(build(subject.model_class, small))
    state = build(subject.model_class, small).state_dict()
    assert set(filled.values()) | set(tied) == set(state)


def test_shards_and_index(tmp_path: Path) -> None:
    config = LlamaConfig(**SMALL)
    build(LlamaForCausalLM, config, device="cpu").save_pretrained(tmp_path, max_shard_size="10KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    filled = check(tmp_path, LlamaForCausalLM, config)
    assert filled["lm_head.weight"] == "lm_head.weight"


def test_headers_are_what_the_library_reads(tmp_path: Path) -> None:
    _saved(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    found = stored(tmp_path)
    assert {name: entry.shape for name, entry in found.items()} == {name: tuple(t.shape) for name, t in tensors.items()}
    assert {entry.dtype for entry in found.values()} == {"F32"}


def test_the_base_model_s_prefix_may_be_absent(tmp_path: Path) -> None:
    config = _saved(tmp_path, tie_word_embeddings=True)
    _rewrite(tmp_path, lambda tensors: {name.removeprefix("model."): value for name, value in tensors.items()})
    assert check(tmp_path, LlamaForCausalLM, config)["norm.weight"] == "model.norm.weight"


def test_the_base_model_s_prefix_may_be_too_much(tmp_path: Path) -> None:
    config = _saved(tmp_path)
    model = build(LlamaForCausalLM, config)
    assert resolver(model)("model.lm_head.weight") == "lm_head.weight"


def test_a_tie_is_filled_from_either_end(tmp_path: Path) -> None:
    config = _saved(tmp_path, tie_word_embeddings=True)
    assert "lm_head.weight" not in stored(tmp_path)

    def other_end(tensors: dict[str, torch.Tensor]) -> None:
        tensors["lm_head.weight"] = tensors.pop("model.embed_tokens.weight")

    _rewrite(tmp_path, other_end)
    assert "lm_head.weight" in check(tmp_path, LlamaForCausalLM, config).values()


def test_buffers_that_older_checkpoints_hold_are_ignored() -> None:
    resolve = resolver(build(LlamaForCausalLM, LlamaConfig(**SMALL)))
    assert resolve("model.layers.0.self_attn.rotary_emb.inv_freq") is None
    assert resolve("model.rotary_emb.inv_freq") is None


def test_declared_leftovers_are_ignored() -> None:
    class Lenient(LlamaForCausalLM):
        _keys_to_ignore_on_load_unexpected = [r"^mtp\."]  # noqa: RUF012  as transformers spells it

    assert resolver(build(Lenient, LlamaConfig(**SMALL)))("mtp.layers.0.weight") is None


def test_renames_that_the_class_declares() -> None:
    class Renamed(LlamaForCausalLM):
        _checkpoint_conversion_mapping = {r"^text\.": "model."}  # noqa: RUF012

    resolve = resolver(build(Renamed, LlamaConfig(**SMALL)))
    assert resolve("text.norm.weight") == "model.norm.weight"
    assert resolve("model.norm.weight") == "model.norm.weight"


def test_renames_that_transformers_declares() -> None:
    subject = load("gemma3n_text")
    resolve = resolver(build(subject.model_class, shrink(subject.config, subject.model_class, layers=2)))
    assert resolve("model.language_model.norm.weight") == "model.norm.weight"


@pytest.mark.parametrize("family", ["hrm_text", "qwen3_moe", "gpt_oss"])
@pytest.mark.parametrize("original", [True, False])
def test_what_transformers_converts_on_loading(tmp_path: Path, family: str, original: bool) -> None:
    subject = load(family)
    small = shrink(subject.config, subject.model_class, layers=1)
    build(subject.model_class, small, device="cpu").save_pretrained(tmp_path, save_original_format=original)
    assert check(tmp_path, subject.model_class, small)


def test_resolving_agrees_with_transformers(tmp_path: Path) -> None:
    _saved(tmp_path)

    def strange(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {
            name.removeprefix("model.") if "layers.1" in name else name: torch.randn_like(value)
            for name, value in tensors.items()
        }

    _rewrite(tmp_path, strange)
    reference = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).state_dict()
    tensors = load_file(tmp_path / "model.safetensors")
    filled = check(tmp_path, LlamaForCausalLM, LlamaConfig.from_pretrained(tmp_path))
    for name, target in filled.items():
        assert torch.equal(tensors[name], reference[target]), name


def test_quantised_modules_are_left_alone(tmp_path: Path) -> None:
    config = _saved(tmp_path)

    def packed(tensors: dict[str, torch.Tensor]) -> None:
        for name in [name for name in tensors if "_proj" in name]:
            tensors[name.replace("weight", "qweight")] = tensors.pop(name)[:4].contiguous()

    _rewrite(tmp_path, packed)
    with pytest.raises(CheckpointError, match="14 extra"):
        check(tmp_path, LlamaForCausalLM, config)
    config.quantization_config = {"quant_method": "gptq"}
    assert len(check(tmp_path, LlamaForCausalLM, config)) == 7


def test_a_vendor_s_own_copy_beside_the_weights_is_not_read(tmp_path: Path) -> None:
    config = _saved(tmp_path)
    save_file({"tok_embeddings.weight": torch.zeros(2)}, tmp_path / "consolidated.safetensors")
    assert check(tmp_path, LlamaForCausalLM, config)


def test_an_index_without_its_shard(tmp_path: Path) -> None:
    index = {"weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"model-00001-of-00002\.safetensors, which is not there"):
        stored(tmp_path)
