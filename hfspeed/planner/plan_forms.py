"""What a configuration says under the names of the three plans, where that is none, and in which file it says so."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hfspeed.errors import SubjectError
from hfspeed.plan.styles import KINDS, attribute
from hfspeed.refusal import Place
from hfspeed.source.configuration import declared, place_of

STAGE = "(['hidden_states'], ['hidden_states'])"


def demand_plans(config: Any) -> None:
    """Refuse a plan that is no dictionary: no model can be built then, and what that raises names no plan.

    Raises:
        SubjectError: at the line where it stands.
    """
    for part in (config, *(one for one in vars(config).values() if hasattr(one, "get_text_config"))):
        for kind in KINDS:
            given = getattr(part, attribute(kind), None)
            if given and not isinstance(given, Mapping):
                place = where_said(part, kind)
                wanted = f"{{module: {STAGE if kind == 'pp' else 'style'}}}"
                raise SubjectError(
                    f"{place.file}:{place.line}: {attribute(kind)} of {type(part).__name__} is a "
                    f"{type(given).__name__}, expected a dictionary {wanted}",
                    place,
                )


def odd_entries(plan: Mapping[Any, Any], kind: str) -> Iterator[tuple[Any, str]]:
    """Entries that have not the form of one, each with why."""
    for name, entry in plan.items():
        if not isinstance(name, str):
            yield name, f"the name {name!r} of an entry in {attribute(kind)} is no text"
        elif kind == "pp" and not _is_stage(entry):
            yield name, f"{entry!r} in {attribute(kind)} is not what a module reads and gives, as {STAGE}"
        elif kind != "pp" and not isinstance(entry, str):
            yield name, f"{entry!r} in {attribute(kind)} is no style"


def regular(plan: Mapping[Any, Any], kind: str) -> dict[str, Any]:
    """The entries that have the form of one."""
    odd = {name for name, _ in odd_entries(plan, kind)}
    return {name: entry for name, entry in plan.items() if name not in odd}


def where_said(config: Any, kind: str, key: Any = None) -> Place:
    """The file and line of a plan, or of one entry: a class, or ``config.json``, which has the last word.

    Where no such plan is said, the place of the configuration class.
    """
    name = attribute(kind)
    file = json_with(config, kind)
    if file is not None:
        lines = file.read_text("utf-8").splitlines()
        start = next((number for number, line in enumerate(lines, 1) if f'"{name}"' in line), 1)
        wanted = json.dumps(key)
        at = next((n for n, line in enumerate(lines, 1) if n >= start and key is not None and wanted in line), start)
        return Place(str(file), at)
    found = declared(type(config), kind) or place_of(type(config))
    return Place(str(found.file), found.at(str(key)))


def json_with(config: Any, kind: str) -> Path | None:
    """The ``config.json`` that says a plan of this kind itself, if it does."""
    folder = str(getattr(config, "_name_or_path", ""))
    file = Path(folder) / "config.json"
    if not folder or attribute(kind) not in vars(config) or not file.is_file():
        return None
    return file if f'"{attribute(kind)}"' in file.read_text("utf-8") else None


def _is_stage(entry: Any) -> bool:
    pair = isinstance(entry, (list, tuple)) and len(entry) == 2
    return pair and all(isinstance(side, (list, tuple)) and all(isinstance(n, str) for n in side) for side in entry)
