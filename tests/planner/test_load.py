"""From names to subjects, and from subjects to modules."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from hfspeed.errors import SubjectError, UsageError
from hfspeed.planner.build import dispatch
from hfspeed.planner.decide import decide
from hfspeed.planner.load import Subject, build, load, model_class_of, randomise

ODD = Path(__file__).with_name("odd_models.py")
SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 128,
}


def test_a_model_type_is_its_default_configuration() -> None:
    subject = load("qwen3")
    assert (subject.model_class.__name__, type(subject.config).__name__) == ("Qwen3ForCausalLM", "Qwen3Config")
    assert (subject.folder, subject.file.name) == (None, "modeling_qwen3.py")


def test_a_composite_type_is_planned_by_its_text_part() -> None:
    subject = load("emu3")
    assert isinstance(subject.config, subject.model_class.config_class)


def test_a_folder_is_its_config(tmp_path: Path) -> None:
    LlamaConfig(**SMALL, architectures=["LlamaForCausalLM"]).save_pretrained(tmp_path)
    subject = load(str(tmp_path))
    assert subject.config.hidden_size == 32
    assert (subject.folder, subject.model_class) == (tmp_path, LlamaForCausalLM)


def test_a_file_of_transformers_keeps_its_real_name() -> None:
    subject = load(str(load("llama").file))
    assert subject.model_class is LlamaForCausalLM
    assert subject.folder is None


def test_a_file_with_relative_imports(tmp_path: Path) -> None:
    (tmp_path / "sizes.py").write_text("WIDTH = 48\n")
    code = ODD.read_text().replace("width: int = 1536", "width: int = WIDTH")
    code = code.replace("import torch\n", "import torch\nfrom .sizes import WIDTH\n", 1)
    (tmp_path / "modeling_odd.py").write_text(code)
    subject = load(str(tmp_path / "modeling_odd.py"))
    assert subject.model_class.__name__ == "OddForCausalLM"
    assert (subject.file, subject.config.width) == (tmp_path / "modeling_odd.py", 48)


def test_an_edited_file_is_another_module(tmp_path: Path) -> None:
    file = tmp_path / "modeling_odd.py"
    file.write_text(ODD.read_text())
    first = load(str(file))
    assert load(str(file)).model_class is first.model_class
    file.write_text(ODD.read_text().replace("gain: float = 1.75", "gain: float = 2.5"))
    second = load(str(file))
    assert (first.config.gain, second.config.gain) == (1.75, 2.5)


def test_the_same_file_elsewhere_is_told_by_its_own_path(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "modeling_odd.py").write_text(ODD.read_text())
        assert load(str(tmp_path / name / "modeling_odd.py")).file.parent.name == name


def test_a_config_beside_the_file_is_used(tmp_path: Path) -> None:
    (tmp_path / "modeling_odd.py").write_text(ODD.read_text())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "odd", "width": 96, "n_blocks": 3}))
    subject = load(str(tmp_path / "modeling_odd.py"))
    assert (subject.config.width, subject.config.n_blocks, subject.folder) == (96, 3, tmp_path)


def _own_code(folder: Path, **values: Any) -> Path:
    (folder / "modeling_odd.py").write_text(ODD.read_text())
    auto = {"AutoConfig": "modeling_odd.OddConfig", "AutoModelForCausalLM": "modeling_odd.OddForCausalLM"}
    (folder / "config.json").write_text(json.dumps({"model_type": "odd", "width": 96, "auto_map": auto, **values}))
    return folder


def test_own_code_needs_trust(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--trust-remote-code"):
        load(str(_own_code(tmp_path)))


def test_own_code_with_trust(tmp_path: Path) -> None:
    subject = load(str(_own_code(tmp_path)), trust_remote_code=True)
    assert (subject.model_class.__name__, subject.config.width) == ("OddForCausalLM", 96)
    assert subject.file == tmp_path / "modeling_odd.py", "the user's own file, not a copy"
    assert build(subject.model_class, subject.config).get_output_embeddings() is not None


def test_a_repository_in_the_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "models--me--odd" / "snapshots" / ("0" * 40)
    refs = tmp_path / "models--me--odd" / "refs"
    for folder in (blobs, snapshot, refs):
        folder.mkdir(parents=True)
    (refs / "main").write_text("0" * 40)
    for file in _own_code(blobs).iterdir():
        blob = file.rename(blobs / file.stem)
        (snapshot / file.name).symlink_to(blob)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    subject = load("me/odd", trust_remote_code=True)
    assert (subject.folder, subject.file) == (snapshot, snapshot / "modeling_odd.py")


def test_the_class_that_architectures_name() -> None:
    config = LlamaConfig(architectures=["MistralForCausalLM"])
    assert model_class_of(config).__name__ == "MistralForCausalLM"


@pytest.fixture(scope="module")
def llama() -> Subject:
    return load("llama")


def test_full_size_on_meta_is_fast_and_empty(llama: Subject) -> None:
    began = time.perf_counter()
    model = build(llama.model_class, llama.config)
    assert time.perf_counter() - began < 2
    assert {tensor.device.type for tensor in model.state_dict().values()} == {"meta"}
    assert not model.training
    assert llama.config._attn_implementation != "hfspeed", "the caller's configuration stays as it was"


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "gptj"])
def test_real_buffers_beside_parameters_on_meta(name: str) -> None:
    subject = load(name)
    model = build(subject.model_class, subject.config, buffers=True)
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    buffers = dict(model.named_buffers())
    assert buffers
    for path, buffer in buffers.items():
        assert buffer.device.type == "cpu", path
        assert torch.isfinite(buffer).all(), path


def test_real_buffers_are_the_author_s_own() -> None:
    config = LlamaConfig(**SMALL)
    real = dict(LlamaForCausalLM(config).named_buffers())
    hollow = dict(build(LlamaForCausalLM, config, buffers=True).named_buffers())
    assert real.keys() == hollow.keys()
    for path, buffer in real.items():
        torch.testing.assert_close(hollow[path], buffer, rtol=0, atol=0)


def test_register_parameter_is_put_back() -> None:
    before = torch.nn.Module.register_parameter
    build(LlamaForCausalLM, LlamaConfig(**SMALL), buffers=True)
    assert torch.nn.Module.register_parameter is before
    assert torch.nn.Linear(2, 2).weight.device.type == "cpu"


def test_ties_hold_on_meta_and_on_cpu() -> None:
    config = LlamaConfig(**SMALL, tie_word_embeddings=True)
    for keywords in ({}, {"buffers": True}, {"device": "cpu"}):
        model = build(LlamaForCausalLM, config, **keywords)
        assert model.lm_head.weight is model.model.embed_tokens.weight


def test_a_class_with_its_own_attention_table_still_builds() -> None:
    subject = load("gpt_neo")
    assert build(subject.model_class, subject.config).config._attn_implementation == "eager"


def test_every_parameter_is_random_and_repeatable() -> None:
    one, two, three = (build(LlamaForCausalLM, LlamaConfig(**SMALL), device="cpu") for _ in range(3))
    for model, seed in ((one, 5), (two, 5), (three, 6)):
        randomise(model, seed)
    for name, parameter in one.named_parameters():
        assert torch.equal(parameter, two.get_parameter(name)), name
        assert not torch.equal(parameter, three.get_parameter(name)), name
        assert parameter.std() > 0.01, name
        assert (parameter != 0).all(), name
    assert (one.model.norm.weight - 1).abs().max() < 1


class Served:
    """An attention that a builder put in place."""

    is_hfspeed_attention = True

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def __call__(self, query: torch.Tensor, *rest: Any, **keywords: Any) -> tuple[torch.Tensor, None]:
        """What the interface returns."""
        self.calls.append({"mask": rest[2], **keywords})
        return query.transpose(1, 2), None


def test_attention_goes_to_the_builder_s() -> None:
    model = build(LlamaForCausalLM, LlamaConfig(**SMALL), device="cpu")
    served = Served()
    for layer in model.model.layers:
        layer.self_attn.attn = served
    model(input_ids=torch.arange(5)[None], use_cache=False)
    assert len(served.calls) == 2
    assert served.calls[0]["mask"] is None, "transformers builds no mask for a name it does not know"
    assert served.calls[0]["scaling"] == 8**-0.5


def test_a_child_called_attn_without_the_mark_is_not_ours() -> None:
    module = torch.nn.Module()
    module.attn = torch.nn.Identity()
    query = torch.randn(1, 2, 3, 4)
    output, _ = dispatch(module, query, query, query, None, scaling=0.5)
    assert output.shape == (1, 3, 2, 4)


def test_a_model_without_output_projection(llama: Subject) -> None:
    from transformers import LlamaModel

    with pytest.raises(SubjectError, match="LlamaModel"):
        decide(replace(llama, model_class=LlamaModel))
