"""Which children of a class are linears."""

from __future__ import annotations

import ast

from hfspeed.lint.classes import ClassFacts, last_name
from hfspeed.lint.facts import Facts


def linears(facts: Facts, cls: ClassFacts) -> set[str]:
    """The children of ``cls`` that are made as torch's ``Linear``."""
    if "Linear" in facts.classes:
        return set()
    return {
        name
        for one in facts.lineage(cls)
        for name, values in one.assigned.items()
        if any(isinstance(value, ast.Call) and last_name(value.func) == "Linear" for value in values)
    }
