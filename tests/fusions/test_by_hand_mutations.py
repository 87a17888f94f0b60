"""Attention by hand is replaced only where what is replaced is all that was computed."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from hfspeed.emit import emitted
from hfspeed.example import Example
from hfspeed.graph.exact import Exact
from hfspeed.pattern.by_hand import by_hand
from hfspeed.pattern.site import Site
from hfspeed.planner import forwards
from hfspeed.planner.witness import distance
from hfspeed.reference.build import build
from hfspeed.refusal import Refused
from hfspeed.testing import module_of, plan_of, recorded

sys.path.insert(0, str(Path(__file__).parent))
from soundness import run

PROJECT = [f"{name} = self.{name}(x).view(1, 6, -1, 8).transpose(1, 2)" for name in "qkv"]
MERGE = "return self.o(h.transpose(1, 2).reshape(1, 6, -1))"
WIDTHS = {"q": 32, "k": 32, "v": 32, "o": 16}
FORMS = {
    "masked": [
        "mask = torch.ones(6, 6, dtype=torch.bool).tril()",
        "w = q @ k.transpose(-1, -2) / 8**0.5",
        "w = w.masked_fill(~mask, float('-inf'))",
        "w = F.softmax(w, dim=-1)",
        "h = w @ v",
    ],
    "added": [
        "bias = torch.ones(6, 6).triu(1).to(q) * -1e9",
        "w = torch.matmul(q * 0.3, k.mT) + bias",
        "p = F.dropout(w.softmax(-1), 0.0, self.training)",
        "h = torch.matmul(p, v)",
    ],
    "torch": ["h = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.2)"],
}
WRITES = """
q = q * 2
q.mul_(2)
k = k.roll(1, 2)
v[..., 0] = 0
v.zero_()
k, v = v, k
w = w * 2
w.mul_(2)
w[..., 0] = 0
mask = mask.tril(-1) | torch.eye(6, dtype=torch.bool)
mask[3, 1] = False
bias[3, 1] = 5
bias = bias * 0
p = p * 0.5
p[..., 0] = 0
p.mul_(3)
h = h * 2
h.mul_(2)
h[..., 0] = 1
x.mul_(2)
self.dump_patches = w
alias = v.view(-1) if v.is_contiguous() else v; alias.mul_(2)
alias = [k]; alias[0].mul_(2)
z = q.mul_(2) + 1
""".strip().splitlines()


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def replaced(source: str) -> bool:
    """Whether attention is replaced; if so, the numbers must be the author's."""
    with Exact():
        root = module_of(Example(source, widths=WIDTHS))
        call = recorded(root).calls["block"]
        try:
            change = by_hand(call, 6)
        except Refused:
            return False
        if change is None:
            return False
        plan = plan_of(forwards.by_hand(Site(call), change), root)
        built = build(plan, root, emitted(plan), under="block", strict=False)
        worst = max(map(distance, run(copy.deepcopy(root), call), run(built, call)))
        assert worst < 1e-8, f"off by {worst}\n{change.text}"
    return True


@pytest.mark.parametrize("form", FORMS)
def test_the_forms_themselves_are_replaced(form: str) -> None:
    assert replaced("\n".join([*PROJECT, *FORMS[form], MERGE]))


def _mutants(form: str, guard: str) -> Iterator[str]:
    lines = [*PROJECT, *FORMS[form], MERGE]
    for write in WRITES:
        parts = write.split("; ")
        body = guard.format("\n    ".join(parts) if guard != "{}" else "\n".join(parts))
        for at in range(2, len(lines)):
            yield "\n".join([*lines[:at], body, *lines[at:]])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("guard", ["{}", "if not self.training:\n    {}", "for _ in range(2):\n    {}"])
def test_a_write_on_the_way_is_never_lost(form: str, guard: str) -> None:
    tried = 0
    for source in _mutants(form, guard):
        try:
            module_of(Example(source, widths=WIDTHS))
        except (NameError, RuntimeError):
            continue  # a name that is not there yet, or a write that torch itself refuses
        replaced(source)
        tried += 1
    assert tried > 5
