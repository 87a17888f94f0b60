"""One finding: what a rule says of one place, and the edits that would mend it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hfspeed.refusal import Place

DOCS = "https://hfspeed.readthedocs.io/en/stable/rules"


class Severity(StrEnum):
    """How bad it is: wrong or impossible, slow or fragile, or only worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Fix(StrEnum):
    """Whether hfspeed can mend it, and whether the mended file is certain to mean the same."""

    NONE = "none"
    SAFE = "safe"
    UNSAFE = "unsafe"


@dataclass(frozen=True)
class Edit:
    """Put ``text`` where ``place`` is, up to its end; a file that is not there is taken for an empty one."""

    place: Place
    text: str


@dataclass(frozen=True)
class Finding:
    """What a rule says of one place.

    Attributes:
        code: the rule's code, e.g. ``HFS101``.
        name: the rule's kebab-case name.
        severity: errors and warnings make ``check`` exit with 1.
        message: states what is there; no full stop, names in backticks.
        cost: what is lost by it; may be empty.
        help: what to write instead, as a command; may be empty.
        place: where it is.
        fix: whether the edits mend it, and how surely.
        edits: what mends it, all of them or none.
    """

    code: str
    name: str
    severity: Severity
    message: str
    cost: str
    help: str
    place: Place
    fix: Fix = Fix.NONE
    edits: tuple[Edit, ...] = ()

    @property
    def order(self) -> tuple[str, int, int, str, str]:
        """The key by which findings are sorted: file, line, column, code."""
        return self.place.file, self.place.line, self.place.column, self.code, self.message

    @property
    def url(self) -> str:
        """The page that explains the rule."""
        return f"{DOCS}/{self.code}/"
