"""Plain values of a call as words: ``activation=silu``, ``dt_limit=0.0:inf``."""

from __future__ import annotations

import re

Value = str | int | float | bool | tuple[float, ...] | None
_WORDS: dict[str, bool | None] = {"none": None, "yes": True, "no": False}


def shown(name: str, value: Value) -> str:
    """One setting as a word that `read` understands.

    Raises:
        ValueError: the value is none that a plan can hold.
    """
    text = ""
    if isinstance(value, tuple):
        text = ":".join(repr(float(item)) for item in value)
    elif value is None or isinstance(value, bool):
        text = next(word for word, known in _WORDS.items() if known is value)
    elif isinstance(value, int | float):
        text = repr(float(value))
    elif re.fullmatch(r"[a-z_]\w*", value) and value not in _WORDS:
        text = value
    else:
        raise ValueError(f"`{name}` is {value!r}, which is no plain value")
    return f"{name}={text}"


def read(entry: str) -> tuple[str, Value]:
    """The name and the value of a setting."""
    name, _, text = entry.partition("=")
    if text in _WORDS:
        return name, _WORDS[text]
    if re.fullmatch(r"[a-z_]\w*", text) and text not in {"inf", "nan"}:
        return name, text
    numbers = tuple(float(item) for item in text.split(":"))
    return name, numbers if len(numbers) > 1 else numbers[0]
