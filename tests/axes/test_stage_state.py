"""What crosses a cut beside the one value is found, in whatever form it travels, and refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from hfspeed.refusal import Reason

sys.path.insert(0, str(Path(__file__).parent))
from decoders import Decoder, Layer, cut, refusal


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


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
