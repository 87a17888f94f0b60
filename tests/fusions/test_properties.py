"""However a forward is spelled, the verdict is the same, and what is emitted computes the same numbers."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from hfspeed.emit import emitted
from hfspeed.fusions import FUSIONS
from hfspeed.graph.exact import Exact
from hfspeed.pattern.fusion import apply
from hfspeed.plan import Gated, Heads, Row, Stacked
from hfspeed.planner.prove import prove_module
from hfspeed.testing import applied, module_of, plan_of

sys.path.insert(0, str(Path(__file__).parent))
from spellings import Spelling, attention, gated

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def fused(spelling: Spelling):
    """The spelling's site after every fusion, and its plan, proven on one and on two ranks."""
    with Exact():
        root = module_of(spelling.example)
        site, call = applied(FUSIONS[0], root)
    for fusion in FUSIONS[1:]:
        apply(fusion, site)
    plan = plan_of(site, root)
    prove_module(plan, root, "block", call.args, call.kwargs, classes=emitted(plan), ranks=(1, 2))
    return site, plan


@QUICK
@given(gated())
def test_a_gated_mlp_is_one_however_it_is_spelled(spelling: Spelling) -> None:
    site, plan = fused(spelling)
    stacked, kernel = site.ops
    parts = (spelling.names["gate"], spelling.names["up"])
    assert stacked == Stacked(stacked.path, parts, 16, (24, 24), bias=True, split=True), str(spelling)
    assert kernel == Gated(kernel.path, spelling.kind)
    assert Row(f"block.{spelling.names['down']}", 24, 24, bias=True) in plan.ops
    assert len({op.path for op in plan.ops}) == len(plan.ops)


@QUICK
@given(attention())
def test_attention_is_one_however_it_is_spelled(spelling: Spelling) -> None:
    site, plan = fused(spelling)
    (heads,) = site.ops
    parts = tuple(spelling.names[role] for role in "qkv")
    wanted = Heads("", parts, 16, 4, 2, 8, 8, bias=bool(spelling.kind), split=True)
    assert replace(heads, path="") == wanted, str(spelling)
    assert Row(f"block.{spelling.names['o']}", 32, 16, bias=True) in plan.ops
