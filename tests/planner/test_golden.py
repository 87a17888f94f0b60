"""Plans of whole families, as text on file: what changes in a decision shows up as a changed line.

``UPDATE_GOLDENS=1 pytest tests/planner/test_golden.py`` writes them anew; read the difference before it is committed.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hfspeed.plan import laws, text
from hfspeed.planner.decide import decide
from hfspeed.planner.load import load

ROOT = Path(__file__).resolve().parent.parent.parent
GOLDENS = Path(__file__).parent / "goldens"
FAMILIES = ("llama", "qwen3", "gemma2", "olmo2", "granite")


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def told(plan) -> str:
    """The plan's text without what differs from machine to machine: errors, and where the author's file lies."""
    whole = text.render(replace(plan, proofs=()))
    claims = sorted({proof.claim for proof in plan.proofs})
    assert all(proof.error <= proof.bound for proof in plan.proofs)
    whole = re.sub(r"hfspeed_author_[0-9a-f]+", "hfspeed_author", whole)
    return whole + "\nproven:\n" + "".join(f"  {claim}\n" for claim in claims)


def check(name: str, found: str) -> None:
    file = GOLDENS / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDENS"):
        file.write_text(found, encoding="utf-8")
    assert found == file.read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_familys_plan(family: str) -> None:
    plan = decide(load(family))
    found = told(plan)
    assert str(ROOT) not in found
    assert "site-packages" not in found
    assert text.parse(found) == tuple(sorted(plan.ops, key=text.order))
    for ranks in (1, 2, 4):
        laws.verify(plan, ranks=ranks)
    check(family, found)


def test_the_plan_of_a_folder() -> None:
    plan = decide(load(str(ROOT / "examples" / "plain"), trust_remote_code=True))
    found = told(plan)
    assert str(ROOT) not in found
    check("examples-plain", found)
