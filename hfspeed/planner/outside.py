"""Plain values outside of modules that a forward changes while it runs: replaced layers would not change them."""

from __future__ import annotations

import copy
import linecache
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.mismatch import arithmetic
from hfspeed.planner.process import authors
from hfspeed.planner.prompts import prompt
from hfspeed.planner.study import TOKENS, Study
from hfspeed.refusal import Place, Reason, Refusal

HELP: Final = "give what a layer needs to know to its constructor, or to its forward as an argument"
PLAIN: Final = (int, float, str, type(None))
MANY: Final = 256
"""Entries of a list or dictionary that are looked at."""
Values = dict[tuple[int, str], Any]
"""By holder and name."""


def outside(small: Study) -> Refusal | None:
    """A refusal if a global, a class or a configuration says something else in one layer than in another.

    What a first run leaves there and a second one finds unchanged is a table kept for later.
    """
    model = copy.deepcopy(small.fresh)
    holders = dict(enumerate(_holders(model)))
    seen: list[Values] = []
    given = prompt(model, TOKENS)
    with torch.no_grad(), arithmetic(torch.float64):
        try:
            model(**given)
            hooks = [m.register_forward_pre_hook(lambda *_: seen.append(_values(holders))) for m in model.modules()]
            model(**given)
        except AUTHOR_ERRORS:
            return None
    for hook in hooks:
        hook.remove()
    for one in (*seen[1:], _values(holders)):
        for at, value in one.items():
            if seen[0].get(at) != value:
                return _told(small, holders[at[0]], at[1])
    return None


def _holders(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """What is outside of modules and can be changed: globals of the author's files, classes, configurations."""
    classes = [cls for cls in authors(model) if cls.__module__ in sys.modules]
    files = {cls.__module__: None for cls in classes}
    yield from ((getattr(sys.modules[name], "__file__", "") or "", vars(sys.modules[name])) for name in files)
    yield from ((getattr(sys.modules[cls.__module__], "__file__", "") or "", vars(cls)) for cls in classes)
    configs = {id(one): one for module in model.modules() if (one := getattr(module, "config", None)) is not None}
    first = next((getattr(sys.modules[name], "__file__", "") or "" for name in files), "")
    yield from ((first, vars(one)) for one in configs.values() if hasattr(one, "__dict__"))


def _values(holders: Mapping[int, tuple[str, Any]]) -> Values:
    found: Values = {}
    for number, (_, names) in holders.items():
        for name, value in list(names.items()):
            if name.startswith("__"):
                continue
            if isinstance(value, PLAIN):
                found[number, name] = value
            elif type(value) in (list, dict):
                entries = list(value.items() if isinstance(value, dict) else enumerate(value))[:MANY]
                found[number, name] = {key: one for key, one in entries if isinstance(one, PLAIN)}
    return found


def _told(small: Study, holder: tuple[str, Any], name: str) -> Refusal:
    file = holder[0]
    changes = re.compile(rf"\s.*\b{re.escape(name)}\b(\[.*\])?\s*([-+*/%|&^]|//|\*\*)?=[^=]")
    lines = linecache.getlines(file) if file else []
    line = next((number for number, text in enumerate(lines, 1) if changes.match(text)), None)
    place = Place(file, line) if line is not None else Place(file, 1) if file and Path(file).exists() else None
    found = f"`{name}`, which belongs to no module, says one thing in one layer and another in the next"
    return Refusal("model", Reason.VALUE_VARIES, found, type(small.model).__name__, place, help=HELP)
