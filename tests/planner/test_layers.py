"""Planning costs grow with distinct layers: equal ones are looked at once, and nothing unequal is taken for equal."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import torch
from torch import nn
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM

from hfspeed.graph.record import record
from hfspeed.planner import draft as drafting
from hfspeed.planner.build import build
from hfspeed.planner.decide import decide
from hfspeed.planner.draft import draft
from hfspeed.planner.load import Subject
from hfspeed.planner.prompts import prompt
from hfspeed.planner.study import TOKENS, study
from hfspeed.planner.verdicts import Verdicts

SMALL: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "vocab_size": 128, "max_position_embeddings": 128, "pad_token_id": 0,
}  # fmt: skip


def llama(layers: int) -> LlamaConfig:
    return LlamaConfig(num_hidden_layers=layers, **SMALL)


def gemma(layers: int) -> Gemma3TextConfig:
    kinds = ["full_attention" if number % 3 == 2 else "sliding_attention" for number in range(layers)]
    return Gemma3TextConfig(num_hidden_layers=layers, layer_types=kinds, sliding_window=64, **SMALL)


def test_eight_layers_cost_as_much_as_sixty_four(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted: modules that were looked into, and the sites that fusions were tried on."""
    sites: list[Any] = []
    monkeypatch.setattr(drafting, "apply", lambda fusion, site: sites.append((fusion, site)))
    work = []
    for layers in (8, 64):
        sites.clear()
        found = study(LlamaForCausalLM, llama(layers), real=False)
        draft(found, Verdicts())
        work.append((len(found.recording.calls), len(sites)))
        assert len(found.recording.like) == layers - 3  # the first, the second and the last have run
    assert work[0] == work[1]


@pytest.mark.parametrize(("model_class", "config"), [(LlamaForCausalLM, llama), (Gemma3ForCausalLM, gemma)])
def test_a_plan_is_the_same_as_if_all_layers_had_run(
    model_class: type[Any], config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = study(model_class, config(12), real=False)
    assert len(shared.recording.like) >= 6
    one, _ = draft(shared, Verdicts())
    monkeypatch.setattr("hfspeed.planner.study.record", lambda *a, **k: record(*a, **k | {"share": False}))
    whole = study(model_class, config(12), real=False)
    assert whole.recording.like == {}
    other, _ = draft(whole, Verdicts())
    assert replace(one, refusals=()) == replace(other, refusals=())
    assert set(one.refusals) == set(other.refusals)


def test_a_proven_plan_names_every_layer(tmp_path) -> None:
    plan = decide(Subject("llama", None, llama(40), LlamaForCausalLM, tmp_path))
    assert plan.tensor
    assert plan.stages is not None
    assert plan.stages.count == 40
    assert all(len(forward.paths) in {1, 40} for forward in plan.forwards)
    assert len({op.path for op in plan.ops if op.path.endswith("qkv_proj")}) == 40


class Layer(nn.Module):
    """Adds what it says to what it is given, one way or another."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number, self.even, self.notes = number, number % 2 == 0, ["x"]
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, extra: Any = None) -> torch.Tensor:
        """Overridden below."""
        return x + self.linear(x)


class Reads(Layer):
    def forward(self, x: torch.Tensor, extra: Any = None) -> torch.Tensor:
        return x - self.linear(x) if self.even else x + self.linear(x)


class ReadsNumber(Layer):
    def forward(self, x: torch.Tensor, extra: Any = None) -> torch.Tensor:
        return x + self.linear(x) if self.number != 5 else x


class ReadsDefault(Layer):
    """Has an attribute of its own in one layer only; elsewhere that of the class is read."""

    mean = False

    def __init__(self, number: int) -> None:
        super().__init__(number)
        if number == 6:
            self.mean = True

    def forward(self, x: torch.Tensor, extra: Any = None) -> torch.Tensor:
        return x if self.mean else x + self.linear(x)


class ReadsUnseen(Layer):
    def forward(self, x: torch.Tensor, extra: Any = None) -> torch.Tensor:
        return x + self.linear(x) if vars(self)["number"] != 5 else x


class Writes(Layer):
    def forward(self, x: torch.Tensor, extra: Any = None) -> torch.Tensor:
        self.notes.append("again")
        return x + self.linear(x)


class WritesGiven(Layer):
    def forward(self, x: torch.Tensor, extra: Any = None) -> torch.Tensor:
        return x.add_(self.linear(x))


class Counts(Layer):
    """Behaves otherwise from the tenth call on, as a file's variable says."""

    def forward(self, x: torch.Tensor, extra: Any = None) -> torch.Tensor:
        COUNT[0] += 1
        return x + self.linear(x) if COUNT[0] < 10 else x


class CountsOn(Layer):
    """The same with an iterator."""

    def forward(self, x: torch.Tensor, extra: Any = None) -> torch.Tensor:
        return x + self.linear(x) if next(NUMBERS) < 10 else x


COUNT = [0]
NUMBERS = count()


class Chain(nn.Module):
    """Layers one after another; ``extra`` is handed to each."""

    def __init__(self, layers: list[nn.Module], extra: Any = None) -> None:
        super().__init__()
        self.layers, self.extra = nn.ModuleList(layers), extra

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, self.extra)
        return x


def run(chain: nn.Module) -> Any:
    chain.to("meta").eval()
    return record(chain, {"x": torch.empty(1, 3, 4, device="meta")}, share=True)


@pytest.mark.parametrize(
    ("cls", "shared"),
    [
        *((Layer, 9), (Reads, 7), (ReadsNumber, 0), (ReadsDefault, 8), (ReadsUnseen, 0)),
        *((Writes, 0), (WritesGiven, 0), (Counts, 0), (CountsOn, 0)),
    ],
)
def test_only_equal_layers_are_shared(cls: type[Layer], shared: int) -> None:
    COUNT[0] = 0
    found = run(Chain([cls(number) for number in range(12)]))
    assert len(found.like) == shared
    if shared == 7:
        assert {path: int(first[-1]) % 2 for path, first in found.like.items()} == {
            path: int(path.rpartition(".")[2]) % 2 for path in found.like
        }


def test_what_the_decoder_hands_over_counts() -> None:
    """A store that every layer is given may change what the next one does."""
    assert len(run(Chain([Layer(n) for n in range(12)], {"store": []})).like) == 0
    assert len(run(Chain([Layer(n) for n in range(12)], (1, "two"))).like) == 9


def test_other_shapes_and_shared_modules_are_other_layers() -> None:
    layers: list[nn.Module] = [Layer(number) for number in range(12)]
    layers[6].linear = nn.Linear(4, 4, bias=False)
    assert "layers.6" not in run(Chain(layers)).like
    layers[7].linear = layers[3].linear
    assert run(Chain(layers)).like == {}
    assert run(Chain([layers[0]] * 12)).like == {}


def test_attributes_are_as_before_when_the_run_is_over() -> None:
    layer = Layer(3)
    run(Chain([layer, *(Layer(n) for n in range(8))]))
    assert "number" not in vars(Layer)
    assert layer.number == 3
    assert not hasattr(Layer, "number")


def test_a_large_model_is_looked_at_with_sharing() -> None:
    model = build(LlamaForCausalLM, llama(10))
    recording = record(model, prompt(model, TOKENS), share=True)
    assert recording.same("model.layers.5.mlp.up_proj") == "model.layers.0.mlp.up_proj"
    assert recording.same("model.layers.9.mlp.up_proj") == "model.layers.9.mlp.up_proj"
