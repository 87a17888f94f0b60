"""Attention by hand that was mended computes what it did, by its own code and through the interface of transformers."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from textwrap import indent
from types import SimpleNamespace
from typing import Any

import pytest

from hfspeed.lint.disk import Disk
from hfspeed.lint.engine import check, read
from hfspeed.lint.mend import mend
from hfspeed.lint.settings import Settings

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

HEAD = """\
import math

import torch
import torch.nn.functional as F
from torch import nn
from transformers.modeling_utils import PreTrainedModel


def repeated(heads, times):
    return heads if times == 1 else heads.repeat_interleave(times, dim=1)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.head_dim = 8
        self.scaling = 0.2
        self.num_key_value_groups = 2
        self.dropout = 0.1
        self.q_proj = nn.Linear(32, 32)
        self.k_proj = nn.Linear(32, {kv})
        self.v_proj = nn.Linear(32, {kv})
        self.o_proj = nn.Linear(32, 32)
        self.attn_dropout = nn.Dropout(0.1)
        self.table = nn.Parameter(torch.randn(4, 1, 1))
        self.register_buffer("bias", torch.tril(torch.ones(64, 64, dtype=torch.bool))[None, None], persistent=False)

    def forward(self, x, attention_mask=None, past_key_values=None):
        tokens = x.shape[1]
        query = self.q_proj(x).unflatten(-1, (-1, 8)).transpose(1, 2)
        key = self.k_proj(x).unflatten(-1, (-1, 8)).transpose(1, 2)
        value = self.v_proj(x).unflatten(-1, (-1, 8)).transpose(1, 2)
{attention}
        mixed = mixed.transpose(1, 2).flatten(2)
        return self.o_proj(mixed), weights
"""
GROUPED = """
key = repeated(key, self.num_key_value_groups)
value = repeated(value, self.num_key_value_groups)

weights = torch.matmul(query, key.mT) / math.sqrt(self.head_dim)
if weights.shape[-2:] != (tokens, tokens):
    raise ValueError("keys of another length")
# the mask, as long as the keys are
if attention_mask is not None:
    weights = weights + attention_mask[..., : key.size(2)]
weights = torch.softmax(weights, -1, dtype=torch.float32).type_as(value)
weights = F.dropout(weights, self.dropout, self.training)
mixed = torch.matmul(weights, value)
"""
BUFFER = """
query_length, key_length = query.size(-2), key.size(-2)
weights = query @ key.mT
causal = self.bias[:, :, key_length - query_length : key_length, :key_length]
weights = torch.where(causal, weights, torch.finfo(weights.dtype).min)
weights *= self.scaling
weights = self.attn_dropout(weights.softmax(-1))
mixed = weights @ value
"""
INLINE = """
scores = torch.matmul(query / 3.0, key.transpose(-1, -2))
scores = scores.masked_fill(~self.bias[:, :, :tokens, :tokens], -1e9)
weights = None
mixed = torch.matmul(F.softmax(scores.float(), dim=-1).type_as(query), value)
"""
KERNEL = """
weights = None
mixed = F.scaled_dot_product_attention(
    query, key, value, is_causal=True, scale=0.3
)
"""
TABLE = BUFFER.replace("weights *= self.scaling\n", "weights = weights + self.table\n")
WINDOW = BUFFER.replace("torch.where(causal,", "torch.where(causal & (self.table > 0),")


def written(attention: str, kv: int = 32) -> str:
    return HEAD.format(attention=indent(attention.strip(), " " * 8), kv=kv)


def mended(text: str, file: Path) -> str:
    file.write_text(text)
    disk = Disk()
    assert mend(file, disk, Settings(unsafe_fixes=True)).defect == ""
    disk.write()
    return file.read_text()


def answer(file: Path, implementation: str, mask: Any) -> Any:
    spec = spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    attention = module.Attention(SimpleNamespace(_attn_implementation=implementation)).eval()
    with torch.no_grad():
        return attention(torch.randn(2, 9, 32), attention_mask=mask)[0], set(attention.state_dict())


@pytest.mark.parametrize(
    ("attention", "kv", "scale", "masked"),
    [
        (GROUPED, 16, "1.0 / math.sqrt(self.head_dim)", True),
        (BUFFER, 32, "self.scaling", False),
        (INLINE, 32, None, False),  # the mask of the length of the prompt is a value of the forward
        (INLINE.replace("tokens", "64").replace("[:, :, :64, :64]", ""), 32, None, False),
        (KERNEL, 32, "0.3", False),
    ],
)
def test_a_mended_attention_computes_the_same(
    attention: str, kv: int, scale: str | None, masked: bool, tmp_path: Path
) -> None:
    before, after = tmp_path / "before_attention.py", tmp_path / "after_attention.py"
    before.write_text(written(attention, kv))
    text = mended(written(attention, kv), after)
    if scale is None:
        assert text == before.read_text()
        return
    assert f"scaling={scale}" in text
    assert ("# the mask, as long as the keys are" in text) is (attention == GROUPED)
    mask = torch.full((9, 9), torch.finfo(torch.float32).min).triu(1)[None, None] if masked else None
    (old, names), (new, names_after) = answer(before, "eager", mask), answer(after, "eager", mask)
    assert torch.equal(old, new)
    assert names == names_after
    through, _ = answer(after, "sdpa", mask)
    assert float((through - old).abs().max()) < 1e-5
    assert mended(text, after) == text
    assert [one.code for one in check(read(after))] == []


@pytest.mark.parametrize(
    "attention", [TABLE, WINDOW, GROUPED.replace("+ attention_mask", "+ self.table + attention_mask")]
)
def test_what_the_interface_cannot_say_is_left_alone(attention: str, tmp_path: Path) -> None:
    text = written(attention, 16 if "repeat" in attention else 32)
    file = tmp_path / "modeling_left.py"
    assert mended(text, file) == text
    assert [one.code for one in check(read(file))] == ["HFS101"]


def test_masks_made_elsewhere_keep_it_as_it_is(tmp_path: Path) -> None:
    made = "\n\nclass Model(nn.Module):\n    def forward(self, x):\n        return torch.ones(9, 9).triu(1)\n"
    text = written(GROUPED, 16) + made
    assert mended(text, tmp_path / "modeling_masks.py") == text
    assert "attention_interface" in mended(text.replace(".triu(1)", ""), tmp_path / "modeling_none.py")
