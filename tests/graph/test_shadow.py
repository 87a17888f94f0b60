"""On meta, a forward may still ask for values that follow from token ids and positions alone; no others."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from hfspeed.graph.record import record

sys.path.insert(0, str(Path(__file__).parent))
from blocks import Root, Writes


def asked(code, values=None):
    """What ``code`` returns, as the value read off, on a meta tensor that stands for ``values``."""
    found = []
    real = torch.tensor([[3, 1, 2]]) if values is None else values
    given = real.to("meta")

    def forward(m, x):
        found.append(code(m, x))
        return x

    record(Root(Writes(forward).to("meta")), {"x": given}, values={given: real})
    return found[0]


KNOWN = {
    "the largest": (lambda _, x: x.max().item(), 3),
    "a truth": (lambda _, x: bool((x == 2).any()), True),
    "in a condition": (lambda _, x: "long" if x.max() > 2 else "short", "long"),
    "a list": (lambda _, x: x[0].tolist(), [3, 1, 2]),
    "an int": (lambda _, x: int(x.sum() + 1), 7),
    "of a new value": (lambda _, x: (torch.arange(5, device=x.device)[None, :3] + x).max().item(), 4),
    "of a view": (lambda _, x: x.view(-1)[:2].sum().item(), 4),
    "after a write": (lambda _, x: (x.clone().mul_(2)).max().item(), 6),
    "after a store": (lambda _, x: stored(x.clone(), 9).max().item(), 9),
    "equality": (lambda _, x: torch.equal(x, x.clone()), True),
}
UNKNOWN = {
    "of weights": lambda m, x: (x * m.scale[:3]).max().item(),
    "written by weights": lambda m, x: x.float().clone().mul_(m.scale[:3]).max().item(),
    "stored by weights": lambda m, x: stored(x.float(), m.scale[0]).max().item(),
    "too large": lambda _, x: (torch.ones(5000, 5000, device=x.device) * x.max()).max().item(),
}


def stored(x, value):
    x[..., 0] = value
    return x


@pytest.mark.parametrize("what", KNOWN)
def test_values_that_follow_from_the_prompt(what: str) -> None:
    code, wanted = KNOWN[what]
    assert asked(code) == wanted


@pytest.mark.parametrize("what", UNKNOWN)
def test_no_other_value_is_made_up(what: str) -> None:
    with pytest.raises((RuntimeError, NotImplementedError)):
        asked(UNKNOWN[what])


def test_reads_are_written_down() -> None:
    given = torch.tensor([[4, 5]])
    meta = given.to("meta")
    block = Writes(lambda _, x: x * 2 if x.max() > 4 else x)
    reads = record(Root(block), {"x": meta}, values={meta: given}).reads
    assert reads == [("block", True)]
