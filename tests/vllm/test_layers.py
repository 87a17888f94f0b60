"""Layers by themselves: shares of a norm, placeholders, attention's refusals, names for adapters."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from hfspeed.plan import OPS, Attention, Heads, Stacked
from hfspeed.refusal import Reason, Refused


def test_every_op_has_a_builder(serving: ModuleType) -> None:
    from hfspeed.vllm.build import BUILDERS

    assert set(BUILDERS) == set(OPS)


@pytest.mark.parametrize(("units", "ranks"), [(4, 2), (4, 4), (2, 4), (1, 4)])
def test_a_split_input_is_gathered_and_the_own_share_kept(
    serving: ModuleType, monkeypatch: pytest.MonkeyPatch, units: int, ranks: int
) -> None:
    from hfspeed.plan.shares import span
    from hfspeed.vllm.layers import norm

    torch.manual_seed(0)
    whole = torch.randn(1, 5, units * 3)
    layer = nn.LayerNorm(units * 3)
    nn.init.normal_(layer.weight)
    blocks = [span(units, rank, ranks) for rank in range(ranks)]
    shares = [whole[..., start * 3 : stop * 3] for start, stop in blocks]
    monkeypatch.setattr(norm, "tensor_model_parallel_all_gather", lambda _, dim: torch.cat(shares, dim))
    for rank in range(ranks):
        split = nn.LayerNorm(units * 3)
        split.load_state_dict(layer.state_dict())
        norm.gather(split, units, SimpleNamespace(rank=rank, ranks=ranks))  # type: ignore[arg-type]
        start, stop = blocks[rank]
        torch.testing.assert_close(split(shares[rank]), layer(whole)[..., start * 3 : stop * 3])


@pytest.mark.parametrize("ranks", [1, 3, 4, 7])
def test_a_token_table_goes_over_any_number_of_ranks(
    serving: ModuleType, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    """Every row is on one rank, and all ranks hold as much as arithmetic says."""
    from vllm.model_executor.layers import vocab_parallel_embedding as theirs

    from hfspeed.plan import Embed, Head
    from hfspeed.plan.places import rows
    from hfspeed.vllm.layers.embed import embed, head

    monkeypatch.setattr(theirs, "get_tensor_model_parallel_world_size", lambda: ranks)
    made: list[Any] = []
    site: Any = SimpleNamespace(quant_config=None, ranks=ranks, prefix=str, put=lambda _, layer: made.append(layer))
    covered = []
    for rank in range(ranks):
        monkeypatch.setattr(theirs, "get_tensor_model_parallel_rank", lambda rank=rank: rank)
        embed(Embed("table", 250, 8), site)
        head(Head("head", 250, 8, True), site)
        for layer in made[-2:]:
            assert layer.weight.shape == (rows(250, ranks) // ranks, 8)
        own = made[-1].shard_indices
        covered += range(own.org_vocab_start_index, own.org_vocab_end_index)
    assert covered == list(range(250))


def test_one_rank_needs_no_gathering(serving: ModuleType) -> None:
    from hfspeed.vllm.layers.norm import gather

    layer = nn.LayerNorm(4)
    gather(layer, 2, SimpleNamespace(rank=0, ranks=1))  # type: ignore[arg-type]
    assert not layer._forward_hooks


def test_a_placeholder_hands_on_and_keeps_plain_attributes(serving: ModuleType) -> None:
    from hfspeed.vllm.stages import Elsewhere, is_here

    layer = nn.Linear(2, 2)
    layer.attention_type = "sliding"  # type: ignore[assignment]
    value = torch.ones(1)
    assert Elsewhere(layer)(value, mask=None) is value
    assert Elsewhere(layer, in_tuple=True)(hidden_states=value) == (value,)
    assert Elsewhere(layer).attention_type == "sliding"
    assert not list(Elsewhere(layer).parameters())
    root = nn.Sequential(Elsewhere(layer), layer)
    assert not is_here(root, "0.weight")
    assert is_here(root, "1.weight")


def _attention(**settings: Any) -> Any:
    """The layer without what vLLM's own constructor wants: only checks are run."""
    from hfspeed.vllm.layers.attention import InterfaceAttention

    layer = InterfaceAttention.__new__(InterfaceAttention)
    nn.Module.__init__(layer)
    layer.op = Attention("model.layers.0.self_attn", 2, 2, 4, 4, 0.5, **settings)
    layer.value_size = 4
    return layer


def test_heads_are_as_wide_as_their_values(serving: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from hfspeed.vllm.layers import attention as built
    from hfspeed.vllm.site import Site

    given: dict[str, Any] = {}

    def layer(op: Attention, **settings: Any) -> nn.Module:
        given.update(settings)
        return nn.Identity()

    monkeypatch.setattr(built, "InterfaceAttention", layer)
    monkeypatch.setattr(built, "cache_without_window", lambda config: config)
    monkeypatch.setattr(built, "kernel_head_size", lambda size: size)
    root = nn.ModuleDict({"own": nn.Module()})
    built.attention(Attention("own", 2, 2, 4, 6, 0.5), Site(root, SimpleNamespace(cache_config=None), None, "", 0, 1))
    assert given["head_size"] == given["value_size"] == 6


QKV = (torch.zeros(1, 2, 3, 4),) * 3


@pytest.mark.parametrize(
    ("plan", "keywords"),
    [
        ({}, {"scaling": 0.25}),
        ({}, {"sliding_window": 8}),
        ({"window": 8}, {}),
        ({"window": 8}, {"sliding_window": 9}),
        ({}, {"softcap": 30.0}),
        ({}, {"s_aux": torch.zeros(2)}),
        ({"sinks": "sinks"}, {}),
        ({}, {"position_bias": torch.zeros(1)}),
        ({}, {"dropout": 0.1}),
        ({}, {"is_causal": False}),
    ],
)
def test_what_the_plan_does_not_say_is_refused(serving: ModuleType, plan: Any, keywords: Any) -> None:
    with pytest.raises(Refused) as caught:
        _attention(**plan)(*QKV, None, **keywords)
    assert caught.value.refusal.reason is Reason.KEYWORD_NOT_CONSUMED
    assert caught.value.refusal.module == "model.layers.0.self_attn"


def test_a_mask_is_refused(serving: ModuleType) -> None:
    with pytest.raises(Refused) as caught:
        _attention()(*QKV, torch.zeros(1, 1, 3, 3))
    assert caught.value.refusal.reason is Reason.MASK_NOT_CAUSAL


def test_merged_names_for_adapters(serving: ModuleType) -> None:
    from hfspeed.vllm.build import packed_names

    ops = [
        Heads("m.0.attn.qkv", ("q", "k", "v"), 8, 2, 2, 4, 4, False, True),
        Heads("m.1.attn.qkv", ("q", "k", "v"), 8, 2, 2, 4, 4, False, True),
        Stacked("m.0.mlp.gu", ("g", "u"), 8, (8, 8), False, True),
        Stacked("m.0.mlp.packed", ("packed",), 8, (8, 8), False, True),
    ]
    assert packed_names(ops) == {"qkv": ["q", "k", "v"], "gu": ["g", "u"], "packed": ["packed"]}
    clash = Stacked("m.1.other.gu", ("a", "b"), 8, (8, 8), False, True)
    assert "gu" not in packed_names([*ops, clash])


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("model.layers.3.attn", "model.layers.3.attn"),
        ("model.blocks.3.mixers.1.attn", "model.blocks.3.mixers_1.attn"),
        ("model.shared.attn_1", "model.shared.attn_1.0"),
    ],
)
def test_every_cache_has_a_number(serving: ModuleType, path: str, name: str) -> None:
    """vLLM finds a layer's number by the one whole number in its name."""
    from vllm.model_executor.models.utils import extract_layer_index

    from hfspeed.vllm.site import cache_name

    assert cache_name(path) == name
    assert extract_layer_index(name) in {0, 3}


def test_no_more_positions_than_there_are_rows(serving: ModuleType) -> None:
    from hfspeed.errors import UsageError
    from hfspeed.vllm.layout import check_length

    plan: Any = SimpleNamespace(architecture="Some", wrapper=SimpleNamespace(room=512))
    check_length(plan, 512)
    with pytest.raises(UsageError, match="--max-model-len 512"):
        check_length(plan, 514)
    check_length(SimpleNamespace(wrapper=SimpleNamespace(room=0)), 514)  # type: ignore[arg-type]
