"""The loop over the layers, and what goes round it."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
from transformers.models.bloom import modeling_bloom
from transformers.models.gemma2 import modeling_gemma2
from transformers.models.gpt2 import modeling_gpt2

from hfspeed.refusal import Reason, Refused
from hfspeed.source import Loop, layer_loop, recover

sys.path.insert(0, str(Path(__file__).parent))
from authored import forward


def loop(tmp_path: Path, body: str, chain: str = "layers") -> Loop:
    text = "def forward(self, h, mask=None, flag=False, **kwargs):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    return layer_loop(forward(tmp_path, text), chain)


@pytest.mark.parametrize(
    "header",
    [
        "for layer in self.layers:",
        "for layer in self.layers[: self.config.n]:",
        "for i, layer in enumerate(self.layers):",
        "for layer, m in zip(self.layers, mask):",
        "for i in range(len(self.layers)):\n    layer = self.layers[i]",
        "some = list(self.layers)[1:]\nfor layer in some:",
        "for layer in self.layers if flag else self.layers[1:]:",
    ],
)
def test_loops_in_their_forms(tmp_path: Path, header: str) -> None:
    found = loop(tmp_path, f"{header}\n    h = layer(h, mask)\nreturn h")
    assert found.carried == ("h",)
    assert found.conditional == frozenset()
    assert found.exits == ()


def test_names_by_what_they_do(tmp_path: Path) -> None:
    found = loop(
        tmp_path,
        """
        every = () if flag else None
        grown = []
        last = count = 0
        for i, layer in enumerate(self.layers):
            if flag:
                every = every + (h,)
                continue
            out = layer(h, mask, **kwargs)
            h, weights = out[0], out[1]
            grown.append(weights)
            last = i
            count += 1
            unused = h
        return h, every, grown, last
        """,
    )
    assert found.carried == ("count", "every", "h", "last")
    assert found.conditional == {"every"}
    assert found.targets == ("i", "layer")
    assert found.changed == ("grown",)
    assert found.read == ("flag", "kwargs", "mask")
    assert [type(stmt).__name__ for stmt in found.exits] == ["Continue"]


def test_a_name_bound_first_in_each_turn_is_not_carried(tmp_path: Path) -> None:
    found = loop(
        tmp_path,
        """
        for layer in self.layers:
            if flag:
                kind = 1
            else:
                kind = 2
            residual = h
            h = layer(h, kind) + residual
        residual = h
        names = [residual for residual in h]
        return residual
        """,
    )
    assert found.carried == ("h",)


def test_a_name_bound_in_some_turns_only_is_carried(tmp_path: Path) -> None:
    body = "bias = None\nfor layer in self.layers:\n    h = layer(h, bias)\n    if flag:\n        bias = h\nreturn h"
    found = loop(tmp_path, body)
    assert found.carried == ("bias", "h")
    assert found.conditional == {"bias"}
    walrus = loop(tmp_path, "for layer in self.layers:\n    flag and (y := h)\n    h = layer(h, y)\nreturn h")
    assert walrus.carried == ("h", "y")


def test_read_after_in_an_outer_block(tmp_path: Path) -> None:
    found = loop(tmp_path, "if flag:\n    for layer in self.layers:\n        z = layer(h)\nelse:\n    z = 0\nreturn z")
    assert found.carried == ("z",)


def test_none_or_several_loops_are_refused(tmp_path: Path) -> None:
    for body, told in (
        ("return h", "no loop over `self.layers`"),
        ("for a in self.layers: pass\nfor b in self.layers: pass", "2 loops over `self.layers`"),
        ("for a in self.others: pass", "no loop over `self.layers`"),
    ):
        with pytest.raises(Refused) as caught:
            loop(tmp_path, body)
        assert caught.value.refusal.reason is Reason.NO_DECODER_LAYERS
        assert caught.value.refusal.found == told


def test_real_decoders() -> None:
    assert layer_loop(recover(modeling_gemma2.Gemma2Model), "layers").carried == ("hidden_states",)
    assert layer_loop(recover(modeling_gpt2.GPT2Model), "h").carried == ("hidden_states",)
    bloom = layer_loop(recover(modeling_bloom.BloomModel), "h")
    assert set(bloom.carried) - bloom.conditional == {"hidden_states"}


@pytest.mark.parametrize("test", ["self.training", "self.training and flag", "flag and self.training"])
def test_a_way_out_that_only_training_takes_is_none(tmp_path: Path, test: str) -> None:
    body = "for layer in self.layers:\n    if {}:\n        continue\n    h = layer(h, mask)\nreturn h"
    assert not loop(tmp_path, body.format(test)).exits
    for other in ("flag", "not self.training", "self.training or flag", "other.training"):
        assert loop(tmp_path, body.format(other)).exits
