"""For tests: whether a model is still served fast and right, and whether a fusion's own examples hold."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hfspeed.testing.examples import (
        applied,
        cases,
        check_fuses,
        check_refuses,
        check_replaces,
        module_of,
        plan_of,
        recorded,
    )
    from hfspeed.testing.model import Lost, check_model

__all__ = [
    "Lost",
    "applied",
    "cases",
    "check_fuses",
    "check_model",
    "check_refuses",
    "check_replaces",
    "module_of",
    "plan_of",
    "recorded",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for: pytest loads the plugin beside this in every project, and that must cost nothing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "model" if name in {"Lost", "check_model"} else "examples"
    return getattr(import_module(f"hfspeed.testing.{home}"), name)
