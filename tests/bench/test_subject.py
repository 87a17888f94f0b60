"""Presets, folders and names become jobs, or a message that says what is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hfspeed.bench.arms import chosen
from hfspeed.bench.presets import names, preset, require_gpus
from hfspeed.bench.subject import environment, settled
from hfspeed.errors import UsageError
from hfspeed.planner.load import load

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 99,
}  # fmt: skip


def job(model: str, folder: Path, load: Any = None, flags: Any = None) -> Any:
    return settled(model, folder, load or {}, flags or {}, rounds=5, arms=4, restart=False)


@pytest.mark.parametrize("name", names())
def test_presets_say_everything(name: str) -> None:
    one = preset(name)
    assert one is not None
    assert bool(one.model) != bool(one.config)
    assert min(one.prompts, one.input_len, one.output_len) > 1
    sizes = [one.engine.get(f"{kind}_parallel_size", 1) for kind in ("tensor", "data", "pipeline")]
    assert one.gpus == (sizes[0] * sizes[1] * sizes[2] if one.gpus else 0)
    assert one.gpus or name.startswith("cpu-")


@pytest.mark.parametrize("name", [name for name in names() if (one := preset(name)) and one.config])
def test_configurations_of_presets_are_taken_by_their_authors(name: str, tmp_path: Path) -> None:
    one = preset(name)
    assert one is not None
    (tmp_path / "config.json").write_text(json.dumps(one.config), "utf-8")
    assert load(str(tmp_path)).config.model_type == one.config["model_type"]


def test_the_published_configurations_are_there() -> None:
    cpu = ["cpu-dense", "cpu-dense-tp2", "cpu-gated-delta", "cpu-moe", "cpu-short-conv", "cpu-state-space"]
    assert names() == [*cpu, "gpu-235b-fp8-dp8-ep", "gpu-32b-tp2", "gpu-4b"]
    assert preset("cpu-none") is None


def test_gpus_are_asked_for_before_anything_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("hfspeed.bench.presets.gpus", lambda: 1)
    with pytest.raises(UsageError, match="needs 2 GPUs, and torch sees 1 here"):
        job("gpu-32b-tp2", tmp_path)
    wanted = preset("gpu-4b")
    assert wanted is not None
    require_gpus(wanted)


def test_a_preset_is_written_with_weights_that_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors import safe_open

    small = preset("cpu-dense")
    assert small is not None
    config = {**small.config, **CONFIG, "dtype": "bfloat16", "tie_word_embeddings": True}
    monkeypatch.setattr("hfspeed.bench.subject.preset", lambda name: type(small)("x", "", 4, 8, 6, config=config))
    done = job("x", tmp_path, {"output_len": 5})
    assert (done.job.prompts, done.job.input_len, done.job.output_len, done.job.vocabulary) == (4, 8, 5, 99)
    assert done.comparable
    assert done.job.told, "random weights"
    assert done.job.written(1) == done.job.written(1) != done.job.written(2)
    assert "load_format" not in done.job.engine
    with safe_open(Path(done.job.model) / "model.safetensors", "pt") as file:
        stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a dictionary
    assert "lm_head.weight" not in stored, "tied weights are stored once"
    assert str(stored["model.embed_tokens.weight"].dtype) == "torch.bfloat16"
    assert stored["model.norm.weight"].eq(1).all()
    assert 0.01 < float(stored["model.layers.0.mlp.up_proj.weight"].float().std()) < 0.03


def test_a_folder_with_a_config_alone_is_enough(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    done = job(str(tmp_path), tmp_path)
    assert done.job.engine["load_format"] == "dummy"
    assert not done.comparable
    assert done.environ["HF_HUB_OFFLINE" if "HF_HUB_OFFLINE" in done.environ else "VLLM_CPU_KVCACHE_SPACE"] == "1"
    (tmp_path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    assert job(str(tmp_path), tmp_path).comparable
    assert job(str(tmp_path), tmp_path).job.written(1) is None


def test_flags_pass_through(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"vocab_size": 77}}))
    flags = {"tensor_parallel_size": 2, "enforce_eager": True, "load_format": "auto"}
    done = job(str(tmp_path), tmp_path, flags=flags)
    assert flags.items() <= done.job.settings(chosen("peer")[0]).items()
    assert done.job.vocabulary == 77


@pytest.mark.parametrize("model", ["", "nowhere"])
def test_no_model(tmp_path: Path, model: str) -> None:
    with pytest.raises(UsageError, match=r"config.json|no folder here"):
        job(model or str(tmp_path), tmp_path)


def test_cores_are_dealt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {4, 5, 6, 7}, raising=False)
    monkeypatch.delenv("VLLM_CPU_OMP_THREADS_BIND", raising=False)
    key = "VLLM_CPU_OMP_THREADS_BIND"
    assert environment({}, local=True)[key] == "4,5,6,7"
    assert environment({"tensor_parallel_size": 2}, local=True)[key] == "4,5|6,7"
    assert environment({"tensor_parallel_size": 3}, local=True)[key] == "4|5|6"


def test_arms_by_name() -> None:
    assert [arm.name for arm in chosen(None)] == ["native", "hfspeed", "unfused", "peer"]
    assert [arm.name for arm in chosen("peer, native")] == ["native", "peer"]
    with pytest.raises(UsageError, match="did you mean native"):
        chosen("nativ")
    less = chosen("hfspeed-rotary-regions, hfspeed, hfspeed-gated")
    assert [arm.name for arm in less] == ["hfspeed", "hfspeed-rotary-regions", "hfspeed-gated"]
    assert less[1].environ == {"HFSPEED_FUSIONS": "-rotary", "HFSPEED_REGIONS": "off"}
    assert less[1].is_served_by("hfspeed.vllm.models.causal.TransformersForCausalLM")
    with pytest.raises(UsageError, match="did you mean `-rotary`"):
        chosen("native,hfspeed-rotari")
    with pytest.raises(UsageError, match="names no arm"):
        chosen(" ,")
