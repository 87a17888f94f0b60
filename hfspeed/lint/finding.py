"""One finding: what a rule says of one place."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hfspeed.refusal import Place


class Severity(StrEnum):
    """How bad it is: wrong or impossible, slow or fragile, or only worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


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
    """

    code: str
    name: str
    severity: Severity
    message: str
    cost: str
    help: str
    place: Place

    @property
    def order(self) -> tuple[str, int, int, str, str]:
        """The key by which findings are sorted: file, line, column, code."""
        return self.place.file, self.place.line, self.place.column, self.code, self.message
