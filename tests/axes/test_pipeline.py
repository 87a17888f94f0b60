"""Where a decoder may be cut: found in what ran, refused where more than one value would have to cross."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hfspeed.axes import pipeline
from hfspeed.graph.record import record
from hfspeed.hints import decoder_layers
from hfspeed.pattern.site import Site
from hfspeed.refusal import Reason, Refused

X = torch.randn(1, 3, 4)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


class Layer(nn.Module):
    def __init__(self, index=0):
        super().__init__()
        self.linear, self.index = nn.Linear(4, 4), index

    def forward(self, x, *others):
        return self.linear(x + sum(others))


class Pair(Layer):
    def forward(self, x):
        return super().forward(x), x.sum()


class Decoder(nn.Module):
    """Five layers and a norm, run by `loop`."""

    def __init__(self, layer=Layer):
        super().__init__()
        self.layers = nn.ModuleList([layer(index) for index in range(5)])
        self.norm = nn.LayerNorm(4)
        self.embed = nn.Linear(4, 4)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Model(nn.Module):
    def __init__(self, decoder):
        super().__init__()
        self.decoder = decoder

    def forward(self, x):
        return self.decoder(x)


def found(decoder: nn.Module) -> tuple[str, str]:
    return pipeline.layer_list(record(Model(decoder), {"x": X}))


def cut(decoder: nn.Module):
    recording = record(Model(decoder), {"x": X})
    path, layers = pipeline.layer_list(recording)
    site = Site(recording.calls[path])
    stages, changes = pipeline.cut(recording, site, layers, "decoder.embed")
    site.changes += changes
    return stages, site.text()


def refusal(decoder: nn.Module, ask=cut):
    with pytest.raises(Refused) as caught:
        ask(decoder)
    return caught.value.refusal


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


# State between layers, in every form in which it may travel.


class SecondValue(Decoder):
    def forward(self, x):
        y = x * 0
        for layer in self.layers:
            x, y = layer(x, y), x
        return self.norm(x + y)


class Grows(Decoder):
    def forward(self, x):
        seen = []
        for layer in self.layers:
            x = layer(x, *seen)
            seen.append(x)
        return self.norm(x)


class Stores(Decoder):
    def forward(self, x):
        kept = {}
        for index, layer in enumerate(self.layers):
            x = layer(x, kept[index - 3] if index >= 3 else 0)
            kept[index] = x
        return self.norm(x)


class Sometimes(Decoder):
    def forward(self, x):
        anchor = 0
        for index, layer in enumerate(self.layers):
            if index == 1:
                anchor = layer.linear.weight.sum() * x
            x = layer(x, anchor)
        return self.norm(x)


class Later(Decoder):
    def forward(self, x):
        marks = []
        for layer in self.layers:
            x = layer(x)
            marks.append(x.mean())
        return self.norm(x) * marks[0]


class OnTheModule(Decoder):
    def forward(self, x):
        for index, layer in enumerate(self.layers):
            x = layer(x, self.kept if index == 4 else 0)
            if index == 0:
                self.kept = x * 2
        return self.norm(x)


class Cache:
    def __init__(self):
        self.values = {}


class Shared(Layer):
    def forward(self, x, cache):
        if self.index == 0:
            cache.values[0] = self.linear(x)
        return x + cache.values[0] if self.index == 4 else x * 2


class Smuggles(Decoder):
    def __init__(self):
        super().__init__(Shared)

    def forward(self, x):
        cache = Cache()
        for layer in self.layers:
            x = layer(x, cache)
        return self.norm(x)


class Leaves(Decoder):
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            if x.shape[0] > 7:
                break
        return self.norm(x)


@pytest.mark.parametrize(
    "decoder", [SecondValue, Grows, Stores, Sometimes, Later, OnTheModule, Smuggles, Leaves], ids=lambda c: c.__name__
)
def test_state_between_layers(decoder: type[nn.Module]) -> None:
    told = refusal(decoder())
    assert told.reason is Reason.STAGE_STATE
    assert told.place is not None
    assert told.module == "decoder"


def test_a_global_value_is_no_state() -> None:
    table = torch.ones(4)

    class Reads(Layer):
        def forward(self, x):
            return self.linear(x) * table.to(x.dtype)

    assert cut(Decoder(Reads))[0].count == 5
