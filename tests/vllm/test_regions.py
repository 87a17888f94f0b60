"""Decoder layers as regions of a compiled graph: what differs between layers is never shared."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

pytestmark = pytest.mark.vllm
OURS = "hfspeed.vllm.models.causal.TransformersForCausalLM"
SIZE, LAYERS = 8, 5
BY_NUMBER = {number: 1.0 + number / 7 for number in range(LAYERS)}


class Same(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number, self.linear = number, nn.Linear(SIZE, SIZE)

    def forward(self, x: torch.Tensor, **_: Any) -> torch.Tensor:
        return x + torch.tanh(self.linear(x))


class Factor(Same):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.factor = BY_NUMBER[number]

    def forward(self, x: torch.Tensor, **_: Any) -> torch.Tensor:
        return x + self.factor * torch.tanh(self.linear(x))


class Number(Same):
    def forward(self, x: torch.Tensor, **_: Any) -> torch.Tensor:
        return x * BY_NUMBER[self.number] + self.linear(x)


class Branch(Same):
    def forward(self, x: torch.Tensor, **_: Any) -> torch.Tensor:
        return x + (torch.relu(self.linear(x)) if self.number % 2 else self.linear(x).abs())


class Child(Same):
    """What differs lies in a plain object two levels below."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.inner = nn.Module()
        self.inner.settings = SimpleNamespace(power=number)
        self.act = (nn.ReLU, nn.Tanh, nn.SiLU)[number % 3]()

    def forward(self, x: torch.Tensor, **_: Any) -> torch.Tensor:
        return x + self.act(self.linear(x)) ** (1 + self.inner.settings.power)


class FirstWithoutNorm(Same):
    """The first layer has no norm, as in some families."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.norm = nn.LayerNorm(SIZE) if number else nn.Identity()

    def forward(self, x: torch.Tensor, **_: Any) -> torch.Tensor:
        return x + self.linear(self.norm(x))


class Acts(Same):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.act = (nn.ReLU, nn.Tanh, nn.SiLU, nn.Identity, nn.Identity)[number]()

    def forward(self, x: torch.Tensor, **_: Any) -> torch.Tensor:
        return x + self.act(self.linear(x))


class Bounds(Same):
    """The same operation and number, by another keyword."""

    def forward(self, x: torch.Tensor, **_: Any) -> torch.Tensor:
        bound = {"min" if self.number % 2 else "max": 0.25}
        return x + torch.clamp(self.linear(x), **bound)


class Tuple(Same):
    """What older layers return: a tuple of which only the first is there."""

    def forward(self, x: torch.Tensor, **_: Any) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        return x + self.linear(x) * BY_NUMBER[self.number], None


class Listed(Same):
    """A list by number that the decoder hands to every layer."""

    def forward(self, x: torch.Tensor, *, scales: list[float], **_: Any) -> torch.Tensor:
        return x + self.linear(x) * scales[self.number]


class GivesBack(Same):
    """Some layers give what they were given, which no region may."""

    def forward(self, x: torch.Tensor, **_: Any) -> torch.Tensor:
        return x if self.number == 2 else x + self.linear(x)


class Remembers(Same):
    """A layer that changes itself is no region either."""

    def forward(self, x: torch.Tensor, **_: Any) -> torch.Tensor:
        self.seen = getattr(self, "seen", 0) + 1
        return x + self.linear(x) * self.seen


class Told(Same):
    """Called twice a step, and told each time how often it was."""

    def forward(self, x: torch.Tensor, *, turn: int = 0, **_: Any) -> torch.Tensor:
        return x + self.linear(x) * (1 + turn)


class Decoder(nn.Module):
    def __init__(self, kind: type[Same]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(kind(number) for number in range(LAYERS))
        self.scales = list(BY_NUMBER.values())
        self.turns = 2 if kind is Told else 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for turn in range(self.turns):
            for layer in self.layers:
                x = layer(x, scales=self.scales, turn=turn)
                x = x[0] if isinstance(x, tuple) else x
        return x


KINDS = (
    Same, Factor, Number, Branch, Child, FirstWithoutNorm, Acts, Bounds, Tuple, Listed, Told, GivesBack, Remembers,
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_same_numbers(kind: type[Same]) -> None:
    from hfspeed.vllm.regions import Regions

    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Decoder(kind).eval()
    inputs = [torch.randn(3, SIZE), torch.randn(4, SIZE)]
    with torch.no_grad():
        wanted = [_fresh(model)(x) for x in inputs]
        _fresh(model)
        regions = Regions(_plan(kind), model, divides=True)
        assert [type(layer).__name__ for layer in model.layers] == [kind.__name__] * LAYERS
        assert all(isinstance(layer, kind) for layer in model.layers)
        for x, right in zip(inputs, wanted, strict=True):
            found = regions.compiled(torch.compile(model, fullgraph=True, backend="aot_eager"), x)
            _fresh(model)
            torch.testing.assert_close(found, right)


def _plan(kind: type[Same]) -> Any:
    in_tuple = kind is Tuple
    stages = SimpleNamespace(layers="layers", tuple_output=in_tuple, rest=int(in_tuple))
    return SimpleNamespace(architecture="Toy", stages=stages)


def _fresh(model: nn.Module) -> nn.Module:
    for layer in model.layers:
        vars(layer).pop("seen", None)
    return model


@pytest.mark.parametrize(("kind", "kinds"), [(Same, 1), (Factor, LAYERS), (Branch, 2), (Bounds, 2)])
def test_equal_layers_share(kind: type[Same], kinds: int) -> None:
    """As many pieces of graph as there are kinds of layer."""
    from hfspeed.vllm.regions import Regions

    torch._dynamo.reset()
    model = Decoder(kind).eval()
    regions = Regions(_plan(kind), model, divides=True)
    graphs = CompileCounterWithBackend("eager")
    with torch.no_grad():
        regions.compiled(torch.compile(model, fullgraph=True, backend=graphs), torch.randn(3, SIZE))
    assert graphs.frame_count == 1
    pieces = [name for name, child in graphs.graphs[0].named_children() if isinstance(child, torch.fx.GraphModule)]
    assert len(pieces) == kinds


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_one_graph_without_breaks(serving: ModuleType, checkpoint: Any) -> None:
    """In the engine: one graph, no break in it, nothing compiled after the start, and layers that share kernels."""
    settings: dict[str, Any] = {"enforce_eager": False, "counts": True}
    apart = serving.serve(checkpoint("qwen3_deep"), **settings)
    whole = serving.serve(checkpoint("qwen3_deep"), environ={"HFSPEED_REGIONS": "off"}, **settings)
    for answer in (apart, whole):
        assert answer.get("served") == [OURS], answer
        assert answer["tokens"], answer
        assert answer["apart"] < serving.TOLERANCE
        assert (answer["compiled"]["graphs"], answer["compiled"]["breaks"]) == (1, 0)
        assert not any(answer["later"].values())
    assert (apart["compiled"]["traced"], whole["compiled"]["traced"]) == (apart["layers"], 0)
    assert apart["layers"] > 1
    assert apart["compiled"]["kernels"] < whole["compiled"]["kernels"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_layers_that_differ(serving: ModuleType, checkpoint: Any) -> None:
    """The first layer of this family has no norm, and each layer its own window and rotation."""
    answer = serving.serve(checkpoint("modernbert_decoder"), enforce_eager=False)
    assert answer.get("served") == [OURS], answer
    assert answer["tokens"], answer
    assert answer["apart"] < serving.TOLERANCE
