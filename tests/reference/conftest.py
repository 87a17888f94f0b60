"""Hand-written plans of real families, for whoever tests what is done with a plan."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parent.parent / "hand_plans.py"


@pytest.fixture(scope="session")
def hand():
    """The module of hand-written plans."""
    if "hand_plans" not in sys.modules:
        spec = importlib.util.spec_from_file_location("hand_plans", FILE)
        sys.modules["hand_plans"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules["hand_plans"]
