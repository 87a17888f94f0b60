"""The same configuration with other values: rebuilt by its own constructor, so that what is derived is derived anew."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from hfspeed.planner.import_file import AUTHOR_ERRORS

Spot = tuple[tuple[str, ...], str]
"""Where a value stands: the attributes that lead to the nested configuration, and the name in it."""
PER_LAYER = "per_layer_config"
"""transformers' name for values that single layers override: ``{layer: {name: value}}``."""


def spots(config: Any, within: tuple[str, ...] = ()) -> Iterator[tuple[Spot, Any]]:
    """Every public value of ``config`` and of the configurations nested in it, in order of definition."""
    for name, value in vars(config).items():
        if _is_config(value):
            yield from spots(value, (*within, name))
        elif not name.startswith("_") or isinstance(value, (int, list)):
            yield (within, name), value
    if overrides := overrides_of(config):
        yield (within, PER_LAYER), overrides


def overrides_of(config: Any) -> dict[int, dict[str, Any]]:
    """What single layers override, by layer."""
    spec = vars(config).get("_heterogeneity_spec")
    return spec.per_layer_overrides if spec is not None else {}


def remake(config: Any, values: Mapping[Spot, Any]) -> Any:
    """A new configuration of the same class with ``values`` in it; ``config`` is not touched.

    Raises whatever the author's validation raises.
    """
    own = {name: value for (within, name), value in values.items() if not within}
    for name, part in vars(config).items():
        below = {(spot[1:], last): value for (spot, last), value in values.items() if spot[:1] == (name,)}
        if below and _is_config(part):
            own[name] = remake(part, below)
    try:
        return _constructed(config, own)
    except AUTHOR_ERRORS:
        # a constructor may refuse what it derived itself (a list per layer, unfolded from a pattern)
        return _changed(copy.deepcopy(config), own)


def _constructed(config: Any, own: Mapping[str, Any]) -> Any:
    cls = type(config)
    names = _parameters(cls) & set(vars(config))
    given = {name: copy.deepcopy(vars(config)[name]) for name in sorted(names)}
    plain = vars(cls(**copy.deepcopy(given)))
    # what the constructor would not restore by itself came from elsewhere, and is put back
    kept = {
        name: copy.deepcopy(value)
        for name, value in vars(config).items()
        if name not in plain or (plain[name] is not value and plain[name] != value)
    }
    made = cls(**{**given, **{name: value for name, value in own.items() if name in names}})
    return _changed(made, {**kept, **own})


def _changed(config: Any, values: Mapping[str, Any]) -> Any:
    # straight into the dictionary: a setter may refuse one value for as long as another has not followed
    vars(config).update({name: value for name, value in values.items() if name != PER_LAYER})
    if PER_LAYER in values:
        config.per_layer_config = copy.deepcopy(values[PER_LAYER])
    return config


def _parameters(cls: type[Any]) -> set[str]:
    names: set[str] = set()
    for parent in cls.__mro__[:-1]:
        if "__init__" in vars(parent):
            parameters = inspect.signature(vars(parent)["__init__"]).parameters.values()
            names.update(entry.name for entry in parameters if entry.kind is not inspect.Parameter.VAR_KEYWORD)
    if dataclasses.is_dataclass(cls):
        names.update(field.name for field in dataclasses.fields(cls) if field.init)
    return names - {"self", "args", "kwargs"}


def _is_config(value: object) -> bool:
    return hasattr(value, "_attn_implementation_internal")
