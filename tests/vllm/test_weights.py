"""Loading, without an engine: exact names, the freedoms of transformers, and errors that tell names."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from hfspeed.errors import CheckpointError, PlanError
from hfspeed.plan import Attention, Plan, Tie, Weight, Wrapper
from hfspeed.planner.build import build


@pytest.fixture
def author(serving: ModuleType) -> Any:
    """A one-layer model on CPU, tied or not by its attribute."""
    return _author(tied=False)


def _author(*, tied: bool) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 8, "intermediate_size": 12, "num_attention_heads": 2, "vocab_size": 16}
    config = LlamaConfig(num_hidden_layers=1, num_key_value_heads=2, tie_word_embeddings=tied, **sizes)
    return build(LlamaForCausalLM, config, device="cpu")


def _plan(author: Any, ties: tuple[Tie, ...] = (), **changes: str) -> Plan:
    """A plan that keeps every module; ``changes``: other targets."""
    tied = {tie.source for tie in ties}
    names = [name for name in author.state_dict() if name not in tied]
    weights = tuple(Weight(name, changes.get(name.replace(".", "_"), name)) for name in names)
    wrapper = Wrapper("model", (), "lm_head")
    return Plan("Small", "small", 8, (), weights, ties, (), wrapper, None, False)


def _loader(author: Any, plan: Plan, *, strict: bool = True) -> Any:
    from hfspeed.vllm.weights import Loader

    return Loader(plan, author, strict=strict)


def _tensors(author: Any) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    return {name: torch.randn_like(value) for name, value in author.state_dict().items()}


def test_everything_is_filled(author: Any) -> None:
    tensors = _tensors(author)
    filled = _loader(author, _plan(author)).load(author, tensors.items())
    assert filled == set(tensors)
    assert all(torch.equal(author.state_dict()[name], tensors[name]) for name in tensors)


@pytest.mark.parametrize("prefix", ["", "model."], ids=["with", "without"])
def test_base_prefix_there_or_not(author: Any, prefix: str) -> None:
    tensors = {name.removeprefix(prefix): value for name, value in _tensors(author).items()}
    _loader(author, _plan(author)).load(author, tensors.items())
    assert torch.equal(author.model.norm.weight, tensors["model.norm.weight".removeprefix(prefix)])


def test_missing_and_extra_are_told(author: Any) -> None:
    tensors = _tensors(author)
    del tensors["model.norm.weight"]
    tensors["model.layers.0.gate.weight"] = torch.zeros(1)
    wanted = r"1 not on disk: model\.norm\.weight.*1 on disk.*layers\.0\.gate.*config\.json"
    with pytest.raises(CheckpointError, match=wanted):
        _loader(author, _plan(author)).load(author, tensors.items())


def test_what_the_model_has_no_place_for_is_left_out_and_named(author: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from hfspeed.vllm import weights

    told: list[str] = []
    monkeypatch.setattr(weights.logger, "warning", told.append)
    tensors = _tensors(author)
    more = {f"mtp.{number}.weight": torch.zeros(1) for number in range(12)}
    filled = _loader(author, _plan(author)).load(author, (tensors | more).items())
    assert filled == set(tensors)
    assert all(torch.equal(author.state_dict()[name], tensors[name]) for name in tensors)
    assert len(told) == 1
    assert all(word in told[0] for word in ("12 ", "mtp.0.weight", " and 2 more"))


@pytest.mark.parametrize(("name", "refused"), [("layers.0.mlp.up_proj.scale_of_mine", True), ("mtp.0.scale", False)])
def test_what_a_quantised_module_may_need_is_told(author: Any, name: str, refused: bool) -> None:
    author.model.norm.quant_method = object()
    plan = _plan(author)
    plan = replace(plan, weights=tuple(one for one in plan.weights if one.source != "model.norm.weight"))
    given = [*((n, t) for n, t in _tensors(author).items() if "norm" not in n or "layers" in n), (name, torch.zeros(1))]
    with pytest.raises(CheckpointError, match="scale_of_mine") if refused else nullcontext():
        _loader(author, plan).load(author, given)


def test_old_rotary_buffers_may_be_there(author: Any) -> None:
    tensors = _tensors(author)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(2)
    _loader(author, _plan(author)).load(author, tensors.items())


@pytest.mark.parametrize("measured", [True, False], ids=["by hand", "by the interface"])
def test_saved_masks_that_were_measured_must_be_as_computed(author: Any, measured: bool) -> None:
    """A checkpoint's mask could be a window; attention by hand was measured with the one that the code makes."""
    path = "model.layers.0.self_attn"
    module = author.get_submodule(path)
    module.register_buffer("mask", torch.ones(4, 4).tril().bool())
    plan = _plan(author)
    plan = replace(plan, ops=(Attention(path, 2, 2, 4, 4, 0.5, measured=measured),))
    tensors = {name: torch.zeros_like(v) for name, v in author.state_dict().items()}
    tensors[f"{path}.mask"] = module.mask.clone()
    _loader(author, plan).load(author, tensors.items())
    tensors[f"{path}.mask"] = module.mask & torch.ones(4, 4).triu(-1).bool()
    expected = pytest.raises(CheckpointError, match=r"self_attn\.mask on disk") if measured else nullcontext()
    with expected:
        _loader(author, plan).load(author, tensors.items())


def test_shapes_are_checked(author: Any) -> None:
    tensors = _tensors(author)
    tensors["model.norm.weight"] = torch.zeros(9)
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight is \[9\] on disk, but \[8\]"):
        _loader(author, _plan(author)).load(author, tensors.items())


def test_a_plan_that_fills_nothing_is_a_defect(author: Any) -> None:
    plan = _plan(author, model_norm_weight="model.norm.scale")
    with pytest.raises(PlanError, match=r"model\.norm\.scale"):
        _loader(author, plan).load(author, _tensors(author).items())


def test_later_loads_may_be_partial(author: Any) -> None:
    tensors = _tensors(author)
    loader = _loader(author, _plan(author))
    loader.load(author, tensors.items())
    assert loader.load(author, [("lm_head.weight", torch.ones(16, 8))]) == {"lm_head.weight"}


def test_dummy_weights_may_be_filled_in_parts(author: Any) -> None:
    _loader(author, _plan(author), strict=False).load(author, [("lm_head.weight", torch.ones(16, 8))])
    assert bool((author.lm_head.weight == 1).all())


TIE = (Tie("lm_head.weight", "model.embed_tokens.weight"),)


@pytest.mark.parametrize("absent", ["lm_head.weight", "model.embed_tokens.weight", None])
def test_a_tie_is_filled_from_either_end(serving: ModuleType, absent: str | None) -> None:
    author = _author(tied=True)
    tensors = _tensors(author)
    table = tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    tensors.pop(absent or "", None)
    filled = _loader(author, _plan(author, TIE)).load(author, tensors.items())
    assert {"lm_head.weight", "model.embed_tokens.weight"} <= filled
    assert torch.equal(author.lm_head.weight, table)


def test_tied_tensors_that_differ_are_an_error(serving: ModuleType) -> None:
    author = _author(tied=True)
    tensors = _tensors(author)
    tensors["lm_head.weight"] = tensors["lm_head.weight"] + 1
    with pytest.raises(CheckpointError, match="differ on disk"):
        _loader(author, _plan(author, TIE)).load(author, tensors.items())


def test_the_last_stage_fills_its_own_copy_of_the_table(serving: ModuleType) -> None:
    from hfspeed.vllm.stages import Elsewhere

    author = _author(tied=True)
    tensors = _tensors(author)
    loader = _loader(author, _plan(author, TIE))
    author.lm_head.weight = nn.Parameter(torch.zeros(16, 8))
    author.model.embed_tokens = Elsewhere(author.model.embed_tokens)
    del tensors["lm_head.weight"]
    filled = loader.load(author, tensors.items())
    assert "lm_head.weight" in filled
    assert "model.embed_tokens.weight" not in filled
    assert torch.equal(author.lm_head.weight, tensors["model.embed_tokens.weight"])


def test_a_last_stage_without_the_table_on_disk_is_told(serving: ModuleType) -> None:
    from hfspeed.vllm.stages import Elsewhere

    author = _author(tied=True)
    tensors = _tensors(author)
    loader = _loader(author, _plan(author, TIE))
    author.lm_head.weight = nn.Parameter(torch.zeros(16, 8))
    author.model.embed_tokens = Elsewhere(author.model.embed_tokens)
    del tensors["lm_head.weight"], tensors["model.embed_tokens.weight"]
    with pytest.raises(CheckpointError, match=r"lm_head\.weight"):
        loader.load(author, tensors.items())
