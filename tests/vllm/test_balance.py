"""What vLLM asks of a model whose experts move between ranks; it moves them on accelerators only, so by hand here."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from hfspeed.errors import HfspeedError


def parallel(redundant: int = 0, *, on: bool = True) -> Any:
    return SimpleNamespace(enable_eplb=on, eplb_config=SimpleNamespace(num_redundant_experts=redundant))


class Runner:
    def __init__(self) -> None:
        self.weights, self.state = [torch.zeros(4, 2)], {}

    def get_expert_weights(self) -> list[torch.Tensor]:
        return self.weights

    def set_eplb_state(self, **state: Any) -> None:
        self.state = state


def layer(count: int) -> nn.Module:
    made: Any = nn.Module()
    made.op = SimpleNamespace(count=count)
    made.runner = Runner()
    made.held = SimpleNamespace(moe_config=SimpleNamespace(moe_parallel_config=SimpleNamespace(ep_size=2)))
    return made


def found(*counts: int, redundant: int = 0, on: bool = True) -> Any:
    from hfspeed.vllm.balance import Balanced

    class Model(nn.Module, Balanced):
        pass

    model = Model()
    model.layers = nn.ModuleList([layer(count) for count in counts])
    model.find_experts(model, parallel(redundant, on=on))
    return model


def test_every_name_that_vllm_reads(serving: ModuleType) -> None:
    from vllm.model_executor.models.interfaces import MixtureOfExperts, get_mixture_of_experts_model

    model = found(6, 6, redundant=2)
    assert get_mixture_of_experts_model(model) is model
    assert all(hasattr(model, name) for name in MixtureOfExperts.__annotations__)
    told = [model.num_moe_layers, model.num_logical_experts, model.num_physical_experts, model.num_redundant_experts]
    assert told == [2, 6, 8, 2]
    assert model.num_local_physical_experts == 4
    assert model.num_routed_experts == 6
    views = [torch.zeros(2, 8), torch.zeros(2, 6, 2), torch.ones(2, 6)]
    model.set_eplb_state(*views)
    assert [len(weights) for weights in model.expert_weights] == [1, 1]
    assert [one.state["moe_layer_idx"] for one in model.moe_layers] == [0, 1]
    model.update_physical_experts_metadata(8, 4)
    with pytest.raises(AssertionError):
        model.update_physical_experts_metadata(8, 2)


def test_the_class_that_serves_has_them(serving: ModuleType) -> None:
    from vllm.model_executor.models.interfaces import MixtureOfExperts

    from hfspeed.vllm.models.mixture import TransformersMoEForCausalLM

    assert MixtureOfExperts in TransformersMoEForCausalLM.__mro__
    assert TransformersMoEForCausalLM.set_eplb_state is MixtureOfExperts.set_eplb_state


@pytest.mark.parametrize(("counts", "told"), [((), "found no experts"), ((4, 6), r"layers with \[4, 6\] experts")])
def test_what_cannot_be_moved_is_told(serving: ModuleType, counts: tuple[int, ...], told: str) -> None:
    with pytest.raises(HfspeedError, match=told):
        found(*counts)


def test_nothing_is_asked_where_nothing_moves(serving: ModuleType) -> None:
    assert not hasattr(found(4, 6, on=False), "moe_layers")


@pytest.mark.parametrize("redundant", [0, 2, 7])
def test_copies_are_where_vllm_takes_them_to_be(serving: ModuleType, redundant: int) -> None:
    """Its own first arrangement, on every rank of two."""
    from vllm.distributed.eplb.eplb_state import EplbState

    from hfspeed.vllm.balance import copies

    order = EplbState.build_initial_global_physical_to_logical_map(5, redundant)
    for rank in range(2):
        own = range(rank * len(order) // 2, (rank + 1) * len(order) // 2)
        held = SimpleNamespace(
            global_num_experts=len(order),
            _map_global_expert_id_to_local_expert_id=lambda at, own=own: own.index(at) if at in own else -1,
        )
        for number in range(5):
            assert copies(held, number, 5) == [own.index(at) for at in own if order[at] == number]
