"""Where a decoder may be cut: found in what ran, refused where more than one value would have to cross."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from hfspeed.hints import decoder_layers
from hfspeed.refusal import Reason

sys.path.insert(0, str(Path(__file__).parent))
from decoders import Decoder, Layer, Pair, cut, found, refusal


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_one_list() -> None:
    stages, text = cut(Decoder())
    assert (stages.decoder, stages.layers, stages.count, stages.carried) == ("decoder", "decoder.layers", 5, "x")
    assert (stages.first, stages.last, stages.tuple_output) == (("decoder.embed",), ("decoder.norm",), False)
    assert text.splitlines() == [
        "def forward(self, x, intermediate: torch.Tensor | None = None):",
        "    x = self.embed(x)",
        "    if intermediate is not None:",
        "        x = intermediate",
        "    for layer in self.layers:",
        "        x = layer(x)",
        "    if self.hands_on:",
        "        return x",
        "    return self.norm(x)",
    ]


class Tuples(Decoder):
    def forward(self, x):
        for index, layer in enumerate(self.layers[: len(self.layers)]):
            outputs = layer(x)
            x = outputs[0] * (index + 1)
        return self.norm(x)


class Residual(Decoder):
    def forward(self, x):
        position = torch.arange(x.shape[1])[None, :, None] * 1.0
        for layer in self.layers:
            before = x
            x = x + layer(x, position)
            x = x * 2 - before
        return self.norm(x)


class Listed(Decoder):
    """Keeps every hidden state, but only to return them."""

    def forward(self, x):
        every = ()
        for layer in self.layers:
            every += (x,)
            x = layer(x)
        return self.norm(x), every


def test_what_does_not_stand_in_the_way() -> None:
    assert cut(Tuples(Pair))[0].tuple_output
    assert cut(Residual())[0].carried == "x"


def test_what_is_only_collected_needs_the_name_once() -> None:
    """`every` goes round the loop as well, as far as the source can tell."""
    assert refusal(Listed()).reason is Reason.STAGE_STATE


class Two(Decoder):
    def __init__(self):
        super().__init__()
        self.towers = nn.ModuleList([Layer() for _ in range(2)])

    def forward(self, x):
        for tower in self.towers:
            x = tower(x)
        return super().forward(x)


def test_two_lists_need_a_hint() -> None:
    told = refusal(Two(), found)
    assert told.reason is Reason.NO_DECODER_LAYERS
    assert "`decoder.layers`" in told.found
    assert "`decoder.towers`" in told.found
    assert "decoder_layers" in told.help


def test_a_hint_decides() -> None:
    assert found(decoder_layers("layers")(type("Hinted", (Two,), {}))()) == ("decoder", "decoder.layers")
    assert found(decoder_layers("towers")(type("Hinted", (Two,), {}))()) == ("decoder", "decoder.towers")
    assert found(decoder_layers("layers")(type("Hinted", (Decoder,), {}))()) == ("decoder", "decoder.layers")


@pytest.mark.parametrize("name", ["norm", "embed", "blocks"])
def test_a_hint_must_be_true(name: str) -> None:
    told = refusal(decoder_layers(name)(type("Lies", (Decoder,), {}))(), found)
    assert told.reason is Reason.FALSE_HINT
    assert f"`{name}`" in told.found


class Nested(Layer):
    def __init__(self, index=0):
        super().__init__(index)
        self.steps = nn.ModuleList([Layer(), Layer()])

    def forward(self, x):
        for step in self.steps:
            x = step(x)
        return x


class Experts(Layer):
    def __init__(self, index=0):
        super().__init__(index)
        self.experts = nn.ModuleList([Layer(), Layer()])

    def forward(self, x):
        return sum(expert(x) for expert in self.experts)


@pytest.mark.parametrize("layer", [Nested, Experts])
def test_lists_inside_the_layers_are_theirs(layer: type[nn.Module]) -> None:
    assert found(Decoder(layer)) == ("decoder", "decoder.layers")


class Deeper(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Decoder()

    def forward(self, x):
        return self.inner(x)


def test_the_decoder_is_the_module_that_loops() -> None:
    assert found(Deeper()) == ("decoder.inner", "decoder.inner.layers")


class Backwards(Decoder):
    def forward(self, x):
        for layer in reversed(self.layers):
            x = layer(x)
        return x


class Skipping(Decoder):
    def forward(self, x):
        for layer in self.layers[::2]:
            x = layer(x)
        return x


class Parallel(Decoder):
    def forward(self, x):
        return sum(layer(x) for layer in self.layers)


class Again(Decoder):
    def forward(self, x):
        return super().forward(super().forward(x))


@pytest.mark.parametrize("decoder", [Backwards, Skipping, Parallel, Again])
def test_no_row_of_layers(decoder: type[nn.Module]) -> None:
    assert refusal(decoder(), found).reason is Reason.NO_DECODER_LAYERS


class Unrolled(Decoder):
    def forward(self, x):
        one, two, three, four, five = self.layers
        return five(four(three(two(one(x)))))


class Called(Decoder):
    def forward(self, x):
        return self.all(x)

    def all(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize("decoder", [Unrolled, Called])
def test_a_loop_that_is_not_in_the_forward(decoder: type[nn.Module]) -> None:
    assert refusal(decoder()).reason is Reason.NO_DECODER_LAYERS
