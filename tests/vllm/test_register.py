"""The plugin: light, repeatable, complete, and off when told."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def registry(serving: ModuleType, monkeypatch: pytest.MonkeyPatch):
    """vLLM's registry, put back afterwards."""
    from vllm import ModelRegistry
    from vllm.model_executor.models.registry import _VLLM_MODELS, _LazyRegisteredModel

    fresh = {
        arch: _LazyRegisteredModel(f"vllm.model_executor.models.{place}", cls)
        for arch, (place, cls, *_) in _VLLM_MODELS.items()
    }
    monkeypatch.setattr(ModelRegistry, "models", fresh)
    monkeypatch.delenv("HFSPEED", raising=False)
    return ModelRegistry


def test_importing_the_plugin_loads_nothing_heavy() -> None:
    code = "import sys, hfspeed.vllm; print([m for m in ('torch', 'transformers', 'vllm') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_name_of_the_peer_is_ours(registry) -> None:
    from hfspeed.vllm import register

    peers = {name for name, model in registry.models.items() if "transformers" in model.module_name}
    assert "TransformersForCausalLM" in peers
    register()
    assert {registry.models[name].module_name for name in peers} == {"hfspeed.vllm.models"}
    assert registry.models["LlamaForCausalLM"].module_name == "vllm.model_executor.models.llama"
    assert registry.models["PhiForCausalLM"].class_name == "TransformersForCausalLM"
    assert "TransformersMultiModalMoEEmbeddingModel" in registry.models


def test_registering_twice_says_it_once(registry, caplog: pytest.LogCaptureFixture) -> None:
    from hfspeed.vllm import register

    logging.getLogger("vllm").propagate = True
    with caplog.at_level(logging.INFO, "vllm.hfspeed"):
        register()
        first = dict(registry.models)
        register()
    assert registry.models == first
    assert len(caplog.records) == 1


def test_off_registers_nothing(registry, monkeypatch: pytest.MonkeyPatch) -> None:
    from hfspeed.vllm import register

    monkeypatch.setenv("HFSPEED", "off")
    before = dict(registry.models)
    register()
    assert registry.models == before


def test_every_class_can_be_inspected_and_the_others_refuse(registry) -> None:
    from vllm.model_executor.models.registry import _ModelInfo

    from hfspeed.errors import HfspeedError
    from hfspeed.vllm import models
    from hfspeed.vllm.versions import backend_names

    for name in sorted({*backend_names(registry).values(), *models.__all__}):
        cls = getattr(models, name)
        info = _ModelInfo.from_model_cls(cls)
        assert info.architecture == name
        assert info.is_text_generation_model
        assert info.supports_pp
        if name not in models.__all__:
            config = type("Config", (), {"model_config": type("Model", (), {"model": "some/model"})})
            with pytest.raises(HfspeedError, match="HFSPEED=off"):
                cls(vllm_config=config)


def test_no_other_name_exists() -> None:
    from hfspeed.vllm import models

    with pytest.raises(AttributeError):
        _ = models.Anything


def test_the_gate_is_open_for_what_generates(serving: ModuleType) -> None:
    """vLLM asks a transformers class before it asks us; encoders and classifiers still answer for themselves."""
    from transformers import BertModel, CodeGenForCausalLM, LlamaForCausalLM

    from hfspeed.vllm.versions import open_gate

    open_gate()
    open_gate()
    assert CodeGenForCausalLM.is_backend_compatible()
    assert LlamaForCausalLM.is_backend_compatible()
    assert not CodeGenForCausalLM._supports_attention_backend
    assert BertModel.is_backend_compatible() is bool(BertModel._supports_attention_backend)


def test_looked_at_in_this_process(registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On CPUs nothing keeps vLLM from importing our class where it is; another process takes seconds."""
    from vllm.model_executor.models import registry as theirs

    from hfspeed.vllm import register

    def no_process(_: object) -> None:
        raise AssertionError("vLLM starts a process to look at our class")

    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))
    register()
    monkeypatch.setattr(theirs, "_run_in_subprocess", no_process)
    info = registry.models["TransformersForCausalLM"].inspect_model_cls()
    assert (info.architecture, info.supports_pp) == ("TransformersForCausalLM", True)
    assert not info.is_hybrid
    assert registry.models["TransformersHybridForCausalLM"].inspect_model_cls().is_hybrid
    assert list(tmp_path.rglob("*.json")), "the next start would import the class again"
