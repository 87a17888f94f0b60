"""Mixers as remote code has them: each is exact in the proof, by kernels where they are known."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from hfspeed.plan import History, Recurrence
from hfspeed.planner.decide import decide
from hfspeed.planner.load import Subject
from hfspeed.refusal import Reason

sys.path.insert(0, str(Path(__file__).parent))
import unseen_mixers


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("mixer", "kinds"),
    [
        ("gated", ()),
        ("selective", ("convolution", "selective_scan")),
        ("lru", ()),
        ("weighted", ()),
        ("short", ("convolution",)),
    ],
)
def test_it_is_served(mixer: str, kinds: tuple[str, ...]) -> None:
    """What no kernel knows runs on whole sequences, and the plan says so; what is known goes over the ranks."""
    cls, config = unseen_mixers.UnseenForCausalLM, unseen_mixers.UnseenConfig(mixer)
    plan = decide(Subject(mixer, None, config, cls, Path(unseen_mixers.__file__)))
    first = [op for op in plan.ops if op.path == "model.layers.0.mixer"]
    assert tuple(op.kind for op in first if isinstance(op, Recurrence)) == kinds
    assert all(op.segments for op in first if isinstance(op, Recurrence))
    assert any(isinstance(op, History) for op in first) is not bool(kinds)
    assert (Reason.NO_KERNEL in {one.reason for one in plan.refusals}) is not bool(kinds)
    assert max(proof.error for proof in plan.proofs) < 1e-8
