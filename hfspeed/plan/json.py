"""A plan as JSON and back, without loss: classes by name, sequences as tuples, floats to the last bit."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hfspeed.plan.plan import Plan

FORMAT = 1
TAG = "is"
HOLDS = "holds"
"""The name of what is told beside a plan: it depends on numbers of ranks, so it is no part of it."""


def dumps(plan: Plan, *, indent: int | None = None, holds: object = None) -> str:
    """The plan as JSON text; the same plan gives the same bytes. ``holds``: told beside it, where given."""
    more = {} if holds is None else {HOLDS: holds}
    return json.dumps({"hfspeed_plan": FORMAT, "plan": _encode(plan), **more}, indent=indent, allow_nan=False)


def loads(text: str) -> Plan:
    """The plan that `dumps` wrote.

    Raises:
        ValueError: the text is no JSON, is of another format, or some value has the wrong type; says where.
    """
    try:
        data = json.loads(text)
    except RecursionError as error:
        raise ValueError("not a plan: nested too deeply") from error
    if not isinstance(data, dict) or data.keys() - {HOLDS} != {"hfspeed_plan", "plan"}:
        raise ValueError("not a plan: expected an object with `hfspeed_plan` and `plan`; print one with `hfspeed plan`")
    if data["hfspeed_plan"] != FORMAT:
        raise ValueError(f"a plan of format {data['hfspeed_plan']!r}, expected {FORMAT}; plan the model again")
    plan = _decode(data["plan"], Plan, "plan")
    assert isinstance(plan, Plan)
    return plan


def _encode(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return {TAG: type(value).__name__} | {f.name: _encode(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {TAG: "float", "value": repr(value)}
    return value


def _decode(value: Any, wanted: Any, where: str) -> Any:
    origin = get_origin(wanted)
    if origin in {Union, types.UnionType}:
        return _decode_union(value, get_args(wanted), where)
    if origin is tuple:
        return _decode_tuple(value, get_args(wanted), where)
    if origin is Literal:
        return value if value in get_args(wanted) else _wrong(value, f"one of {list(get_args(wanted))}", where)
    if wanted is type(None):
        return value if value is None else _wrong(value, "null", where)
    if is_dataclass(wanted) and isinstance(wanted, type):
        return _decode_record(value, wanted, where)
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        known = {member.value: member for member in wanted}
        member = known.get(value) if isinstance(value, str) else None
        return member if member is not None else _wrong(value, f"a {wanted.__name__}", where)
    if wanted is float:
        return _decode_float(value, where)
    return value if type(value) is wanted else _wrong(value, f"a value of type {wanted.__name__}", where)


def _decode_union(value: Any, choices: tuple[Any, ...], where: str) -> Any:
    if value is None and type(None) in choices:
        return None
    classes = [choice for choice in choices if isinstance(choice, type) and is_dataclass(choice)]
    records: dict[str, Any] = {choice.__name__: choice for choice in classes}
    others = [choice for choice in choices if choice is not type(None) and not is_dataclass(choice)]
    if isinstance(value, dict) and (record := records.get(str(value.get(TAG)))):
        return _decode(value, record, where)
    if len(others) == 1:
        return _decode(value, others[0], where)
    return _wrong(value, _list(records), where)


def _decode_tuple(value: Any, items: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        _wrong(value, "a list", where)
    if len(items) == 2 and items[1] is Ellipsis:
        items = (items[0],) * len(value)
    if len(items) != len(value):
        _wrong(value, f"a list of {len(items)}", where)
    pairs = enumerate(zip(value, items, strict=True))
    return tuple(_decode(item, kind, f"{where}[{at}]") for at, (item, kind) in pairs)


def _decode_float(value: Any, where: str) -> Any:
    if isinstance(value, dict) and value.keys() == {TAG, "value"} and value["value"] in ("inf", "-inf", "nan"):
        return float(value["value"])
    # A whole number stands where a float is wanted: Python takes `scale=1` too, and it must come back as written.
    return value if type(value) in {float, int} else _wrong(value, "a number", where)


def _decode_record(value: Any, record: Callable[..., Any], where: str) -> Any:
    name = getattr(record, "__name__", "")
    if not isinstance(value, dict) or value.get(TAG) != name:
        _wrong(value, f"a {name}", where)
    types_of = _hints(record)
    if strange := value.keys() - types_of.keys() - {TAG}:
        raise ValueError(f"{where}: {name} has no field {_list(strange)}")
    needed = {f.name for f in fields(record) if f.default is MISSING and f.default_factory is MISSING}  # type: ignore[arg-type]
    if missing := needed - value.keys():
        raise ValueError(f"{where}: {name} lacks {_list(missing)}")
    given = {key: _decode(item, types_of[key], f"{where}.{key}") for key, item in value.items() if key != TAG}
    return record(**given)


@cache
def _hints(record: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(record)


def _list(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _wrong(value: object, expected: str, where: str) -> Any:
    shown = json.dumps(value)
    raise ValueError(f"{where}: found {shown if len(shown) < 60 else shown[:57] + '...'}, expected {expected}")
