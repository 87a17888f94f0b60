"""Columns, rows and gathers are read off the dataflow; whether shares really pass through is tried on ranks."""

from __future__ import annotations

import pytest
import torch

from hfspeed.axes import tensor
from hfspeed.axes.tensor import Block
from hfspeed.errors import PlanError
from hfspeed.example import Example
from hfspeed.pattern.site import Site
from hfspeed.planner.mismatch import Mismatch
from hfspeed.planner.prove import prove_module
from hfspeed.testing import module_of, plan_of, recorded

HEADS = """
q = self.q(x).view(1, 6, -1, 8).transpose(1, 2)
k = self.k(x).view(1, 6, -1, 8).transpose(1, 2)
v = self.v(x).view(1, 6, -1, 8).transpose(1, 2)
"""
OUT = "attention(self, q, k, v, None)[0].reshape(1, 6, -1)"
WIDTHS = {"q": 32, "k": 16, "v": 16, "o": 16, "gate": 32, "down": 16, "wide": 32}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def looked_at(source: str, **kwargs):
    root = module_of(Example(source, widths=kwargs.pop("widths", WIDTHS), **kwargs))
    return root, recorded(root).calls["block"]


def block(source: str, **kwargs) -> Block | None:
    """What is suggested, with names as the block itself says them."""
    found = tensor.block(looked_at(source, **kwargs)[1])
    if found is None:
        return None
    start = len("block.")
    columns = {path[start:]: units for path, units in found.columns.items()}
    gathered = {path[start:]: units for path, units in found.gathered.items()}
    return Block(columns, tuple(path[start:] for path in found.rows), gathered, found.attention)


def passes(source: str, ranks: int = 2, **kwargs) -> bool:
    """Whether the suggested split gives the author's numbers on several ranks."""
    root, call = looked_at(source, **kwargs)
    plan = plan_of(Site(call), root)
    prove_module(plan, root, "block", call.args, call.kwargs, ranks=(1,))
    try:
        prove_module(plan, root, "block", call.args, call.kwargs, ranks=(ranks,))
    except (Mismatch, PlanError):
        return False
    return True


MLPS = {
    "gated": ("return self.down(F.silu(self.w(x)) * self.up(x))", {"w": 24, "up": 24}, ("down",)),
    "plain": ("return self.down(torch.relu(self.w(x)).square())", {"w": 24}, ("down",)),
    "three in a row": ("return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))", {"a": 24}, ("b",)),
    "two pairs": ("return self.d(F.gelu(self.c(self.b(F.gelu(self.a(x))))))", {"a": 24, "c": 24}, ("b", "d")),
    "beside one another": (
        "return self.b(F.gelu(self.a(x))) + self.d(F.gelu(self.c(x)))",
        {"a": 24, "c": 24},
        ("b", "d"),
    ),
    "one column for two rows": ("h = F.silu(self.a(x))\nreturn self.b(h) + self.c(h.tanh())", {"a": 24}, ("b", "c")),
    "dropped out": ("return self.down(F.dropout(F.gelu(self.a(x)), 0.5, self.training))", {"a": 24}, ("down",)),
}


@pytest.mark.parametrize("what", MLPS)
def test_feed_forward_blocks(what: str) -> None:
    source, columns, rows = MLPS[what]
    assert block(source) == Block(columns, rows, {}, attention=False)
    assert passes(source)
    assert passes(source, ranks=4)


NO_BLOCKS = {
    "a linear alone": "return self.a(x)",
    "a result that is returned": "h = self.a(x)\nreturn self.b(h), h",
    "a result that is added to": "h = self.a(x)\nreturn self.b(h)[..., :16] + h[..., :16]",
    "siblings": "return self.a(x) * self.b(x)",
    "none": "return x * 2",
}


@pytest.mark.parametrize("what", NO_BLOCKS)
def test_nothing_to_split(what: str) -> None:
    assert block(NO_BLOCKS[what]) is None


def test_attention_is_split_by_heads() -> None:
    source = f"{HEADS}return self.o({OUT})"
    assert block(source) == Block({"q": 4, "k": 2, "v": 2}, ("o",), {}, attention=True)
    assert passes(source)


def test_norms_on_heads_need_no_gather() -> None:
    source = f"{HEADS}q, k = self.one(q), self.two(k)\nreturn self.o({OUT})"
    children = dict.fromkeys(("one", "two"), "nn.RMSNorm(8, eps=1e-6)")
    assert block(source, children=children) == Block({"q": 4, "k": 2, "v": 2}, ("o",), {}, attention=True)
    assert passes(source, children=children)


def test_norms_over_the_whole_width_are_gathered() -> None:
    source = HEADS.replace("self.q(x)", "self.one(self.q(x))").replace("self.k(x)", "self.two(self.k(x))")
    source += f"return self.o({OUT})"
    children = {"one": "nn.RMSNorm(32, eps=1e-6)", "two": "nn.LayerNorm(16)"}
    wanted = Block({"q": 4, "k": 2, "v": 2}, ("o",), {"one": 4, "two": 2}, attention=True)
    assert block(source, children=children) == wanted
    assert passes(source, children=children)


def test_a_gate_on_what_attention_gave() -> None:
    source = f"{HEADS}return self.o({OUT} * self.gate(x).sigmoid())"
    assert block(source) == Block({"q": 4, "k": 2, "v": 2, "gate": 32}, ("o",), {}, attention=True)
    assert passes(source)


def test_attention_and_feed_forward_in_one_module() -> None:
    source = f"{HEADS}return self.o({OUT}) + self.down(F.gelu(self.up(x)))"
    assert block(source) == Block({"q": 4, "k": 2, "v": 2, "up": 24}, ("o", "down"), {}, attention=True)
    assert passes(source)


def test_attention_and_feed_forward_into_one_row() -> None:
    source = f"{HEADS}return self.o(torch.cat([{OUT}, F.gelu(self.up(x))], -1))"
    assert block(source) == Block({"q": 4, "k": 2, "v": 2, "up": 24}, ("o",), {}, attention=True)
    assert not passes(source), "the row's columns lie part by part, not rank by rank"


def test_what_a_linear_hands_to_attention_beside_query_key_and_value() -> None:
    """Attention itself is refused elsewhere; here it must only be looked at."""
    source = HEADS + OUT.join(["return self.o(", ")"]).replace("None)", "None, position_bias=self.gate(x))")
    found = block(source)
    assert found is not None
    assert found.attention
    assert found.columns["gate"] == 32


MIXES = {
    "a softmax over a split value": "return self.down(self.up(x).softmax(-1))",
    "a mean over a split value": "h = self.up(x)\nreturn self.down(h - h.mean(-1, keepdim=True))",
    "a norm over a split value": "h = self.up(x)\nreturn self.down(h / h.norm(dim=-1, keepdim=True))",
    "a function's norm": "return self.down(F.rms_norm(self.up(x), (24,)))",
    "turned": "return self.down(self.up(x).flip(-1))",
    "shifted": "return self.down(self.up(x).roll(1, -1))",
    "one half onto the other": "a, b = self.up(x).chunk(2, -1)\nreturn self.down(torch.cat([b, a], -1))",
    "a place in the width": "h = self.up(x)\nreturn self.down(h * torch.arange(24).to(h))",
    "a split value beside a whole one": "return self.down(torch.cat([self.up(x), x], -1))",
    "the width": "h = self.up(x)\nreturn self.down(h * h.shape[-1])",
    "cut by a fixed number": "return self.down(self.up(x)[..., :16])",
    "the k largest": "h = self.up(x)\nreturn self.down(h * (h >= h.topk(4).values[..., -1:]))",
    "heads mixed": f"{HEADS}q = q.flip(1)\nreturn self.o({OUT})",
    "heads averaged": f"{HEADS}v = v - v.mean(1, keepdim=True)\nreturn self.o({OUT})",
    "channels before heads": f"{HEADS}q = self.q(x).view(1, 6, 8, -1).permute(0, 3, 1, 2)\nreturn self.o({OUT})",
}


@pytest.mark.parametrize("what", MIXES)
def test_code_that_mixes_shares_is_found_out(what: str) -> None:
    assert block(MIXES[what]) is None or not passes(MIXES[what])
