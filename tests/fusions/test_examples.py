"""Every fusion keeps what its examples promise."""

from __future__ import annotations

import pytest

from hfspeed.example import Example
from hfspeed.fusions import FUSIONS, REPLACEMENTS
from hfspeed.pattern.fusion import Fusion
from hfspeed.pattern.replacement import Replacement
from hfspeed.testing import applied, cases, check_fuses, check_refuses, check_replaces, module_of


@pytest.mark.parametrize(("fusion", "example"), cases(FUSIONS, "fuses"))
def test_fuses(fusion: Fusion, example: Example) -> None:
    """It matches, gives the source promised, and computes the author's numbers."""
    check_fuses(fusion, example)


@pytest.mark.parametrize(("fusion", "example"), cases(FUSIONS, "fuses"))
def test_no_earlier_fusion_takes_it(fusion: Fusion, example: Example) -> None:
    """The priority order leaves each example to its own fusion."""
    for earlier in FUSIONS[: FUSIONS.index(fusion)]:
        site, _ = applied(earlier, module_of(example))
        assert not site.ops, earlier.name


@pytest.mark.parametrize(("fusion", "example"), cases((*FUSIONS, *REPLACEMENTS), "refuses"))
def test_refuses(fusion: Fusion | Replacement, example: Example) -> None:
    """It says no for the reason promised, at a line of the example."""
    refusal = check_refuses(fusion, example)
    assert refusal.place is not None
    assert "hfspeed_example_" in refusal.place.file


@pytest.mark.parametrize(("fusion", "example"), cases(REPLACEMENTS, "fuses"))
def test_replaces(fusion: Replacement, example: Example) -> None:
    """It takes the whole module."""
    check_replaces(fusion, example)
