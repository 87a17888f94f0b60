"""The few exceptions a user can meet; each names what, where and what to do."""

from __future__ import annotations

from collections.abc import Iterator

from hfspeed.refusal import Place, Refusal


class HfspeedError(Exception):
    """The parent of every error hfspeed raises on purpose; the command line exits with 2."""


class UsageError(HfspeedError):
    """The request itself cannot be carried out: a wrong flag, a missing file, a missing extra."""


class SubjectError(HfspeedError):
    """The model named by the user cannot be read, imported or built from its configuration.

    Attributes:
        place: the author's line, where one is to blame.
    """

    def __init__(self, text: str, place: Place | None = None) -> None:
        self.place = place
        super().__init__(text)


class HintError(HfspeedError):
    """A hint was written with arguments that cannot be right; raised where the class is defined."""


class CheckpointError(HfspeedError):
    """Weights on disk do not fill the model exactly: missing, extra, truncated or misshapen."""


class CacheError(HfspeedError):
    """The folder for emitted modules and plans cannot be written or read."""


class PlanError(HfspeedError):
    """A plan breaks one of its laws: a defect of hfspeed, told rather than served."""


class RefusedError(HfspeedError):
    """The model cannot be served correctly; the refusals say why, at the author's lines."""

    def __init__(self, subject: str, refusals: tuple[Refusal, ...]) -> None:
        self.subject = subject
        self.refusals = refusals
        told = "\n".join(_told(refusals))
        super().__init__(f"hfspeed cannot serve {subject} correctly, so it does not start:\n{told}")


def _told(refusals: tuple[Refusal, ...]) -> Iterator[str]:
    """Each refusal with what to do; what is the same in many layers once."""
    alike: dict[tuple[object, ...], list[Refusal]] = {}
    for refusal in refusals:
        same = (refusal.wanted, refusal.reason, refusal.found, refusal.place, refusal.help)
        alike.setdefault(same, []).append(refusal)
    for first, *others in alike.values():
        yield f"  {first}" + (f", and {len(others)} more like it" if others else "")
        if first.help:
            yield f"    {first.help}"
