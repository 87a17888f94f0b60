"""The rules, found by walking this folder, since their order does not matter."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from hfspeed.lint.rule import FusionBlocker, Rule
from hfspeed.refusal import Reason


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule, by code."""
    found: dict[str, Rule] = {}
    for entry in pkgutil.walk_packages(__path__, f"{__name__}."):
        for value in vars(import_module(entry.name)).values():
            defined = isinstance(value, type) and issubclass(value, Rule) and value.__module__ == entry.name
            if defined and value not in (Rule, FusionBlocker):
                found[value.code] = value()
    return tuple(found[code] for code in sorted(found))


@cache
def by_reason() -> dict[Reason, Rule]:
    """The rule that lends its words to each reason."""
    return {reason: rule for rule in rules() for reason in rule.reasons}


def find(name: str) -> Rule | None:
    """The rule with this code or name, in any case."""
    wanted = name.strip().lower()
    return next((rule for rule in rules() if wanted in (rule.code.lower(), rule.name)), None)
