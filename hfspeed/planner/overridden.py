"""Whether a plan that is written into a class body is what one gets who loads the file, or other code has its way."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from hfspeed.plan.styles import KINDS, StylePlans, attribute
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.looked import declared_plans
from hfspeed.planner.plan_forms import json_with, where_said


def overridden(file: Path, before: str, text: str, config: Any, plans: StylePlans) -> str:
    """Why a file does not give these plans, with the line that is to blame; empty if it gives them.

    The text is run as its file was when the model was loaded, and nothing else is.

    Args:
        file: where the text is to stand.
        before: what stands there now, whose lines are told.
        text: the whole file, with plans in it.
        config: the configuration that was loaded from the file as it is.
        plans: what was put in; an empty one was left alone.
    """
    owner = type(config)
    fresh = _loaded(file, text, config)
    for kind in KINDS:
        wanted, name = plans.of(kind), attribute(kind)
        if not wanted:
            continue
        if (said := json_with(config, kind)) is not None:
            line = where_said(config, kind).line
            return (
                f"{said}:{line}: {name} stands there as well and has the last word, so that what --write puts into "
                f"{file.name} would have no effect; take it out first"
            )
        lines = list(_others(before, owner.__name__, name))
        if fresh is None:
            if not lines:
                continue
            told = "may say otherwise"
        elif dict(declared_plans(fresh).of(kind)) == dict(wanted):
            continue
        else:
            told = "says otherwise"
        at = f"{file}:{lines[0]}" if lines else str(file)
        return (
            f"{at}: code outside of the body of {owner.__name__} sets {name} and {told}, so that what --write puts "
            "there would have no effect; take that code away first"
        )
    return ""


def _loaded(file: Path, text: str, config: Any) -> Any:
    """The configuration as the text's class makes it; ``None`` where the text cannot be run a second time."""
    owner = type(config)
    known = sys.modules.get(owner.__module__)
    module = ModuleType(owner.__module__)
    if known is not None:
        module.__dict__.update({name: vars(known)[name] for name in ("__package__", "__spec__") if name in vars(known)})
    module.__file__ = str(file)
    try:
        exec(compile(text, str(file), "exec"), module.__dict__)  # noqa: S102  what loading the model runs as well
        return getattr(module, owner.__name__).from_dict(config.to_dict())
    except AUTHOR_ERRORS:
        return None  # as where a file registers its class, which may be done once


def _others(text: str, cls: str, name: str) -> Iterator[int]:
    """Lines that may set the attribute, other than its assignment in the class body."""
    tree = ast.parse(text)
    bodies = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == cls]
    plain = [statement for body in bodies[-1:] for statement in body.body if _assigns(statement, name)]
    spared = {id(node) for statement in plain[:1] for node in ast.walk(statement)}
    for node in sorted((n for n in ast.walk(tree) if hasattr(n, "lineno")), key=lambda n: n.lineno):
        says = (
            (isinstance(node, ast.Attribute) and node.attr == name)
            or (isinstance(node, ast.Name) and node.id == name)
            or (isinstance(node, ast.Constant) and node.value == name)
        )
        if says and id(node) not in spared:
            yield node.lineno


def _assigns(statement: ast.stmt, name: str) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
    return any(isinstance(one, ast.Name) and one.id == name for one in targets)
