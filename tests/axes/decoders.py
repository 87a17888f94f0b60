"""Decoders that the tests of pipeline stages share."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hfspeed.axes import pipeline
from hfspeed.graph.record import record
from hfspeed.pattern.site import Site
from hfspeed.refusal import Refused

X = torch.randn(1, 3, 4)


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
    stages, changes = pipeline.cut(recording, site, layers, "decoder.embed", site.path)
    site.changes += changes
    return stages, site.text()


def refusal(decoder: nn.Module, ask=cut):
    with pytest.raises(Refused) as caught:
        ask(decoder)
    return caught.value.refusal
