"""What is told of tensors that are missing on disk, or that the model has no place for."""

from __future__ import annotations

SHOWN = 10
"""Names listed in an error; a checkpoint of another model would list thousands."""


def surplus(subject: str, names: list[str]) -> str:
    """A warning about tensors on disk that are left out."""
    (told,) = counted("tensors on disk have no place in the model and are left out, as transformers does", names)
    return f"{subject}: {told}; if they should count, config.json or the code is another than theirs"


def counted(what: str, names: list[str]) -> list[str]:
    """``["2 missing: one, other"]``; nothing where there are none."""
    if not names:
        return []
    unique = sorted(set(names))
    more = f" and {len(unique) - SHOWN} more" if len(unique) > SHOWN else ""
    return [f"{len(unique)} {what}: {', '.join(unique[:SHOWN])}{more}"]
