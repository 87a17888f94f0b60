"""A replacement: a fusion that takes a whole module, decided by what it was called with and by running it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NoReturn

from torch import fx, nn

from hfspeed.example import Example
from hfspeed.graph.positions import Span, forward_code
from hfspeed.graph.record import Call
from hfspeed.plan import Op
from hfspeed.refusal import Place, Reason, Refusal, Refused


class Replacement:
    """One kind of module that has a better twin. A subclass gives ``name``, examples, ``sees`` and ``plan``."""

    name: ClassVar[str]
    fuses: ClassVar[tuple[Example, ...]]
    refuses: ClassVar[tuple[Example, ...]]

    def sees(self, call: Call) -> bool:
        """Whether a reader would think of this fusion."""
        raise NotImplementedError

    def plan(self, call: Call, twin: nn.Module, later: Sequence[Call] = ()) -> Op:
        """The op, or `Refused`.

        Args:
            call: the module's first call.
            twin: the module with real buffers, parameters perhaps on meta.
            later: its other calls in the same step.
        """
        raise NotImplementedError

    def refuse(
        self, call: Call, reason: Reason, found: str, node: fx.Node | None = None, help: str = ""
    ) -> NoReturn:
        """Say no, at the line of ``node`` or of the class's forward."""
        raise Refused(Refusal(self.name, reason, found, call.path, place_of(call, node), 1, help))


def place_of(call: Call, node: fx.Node | None = None) -> Place | None:
    """The author's line for a node, else the line of the module's forward."""
    span = node.meta.get("span") if node is not None else None
    if isinstance(span, Span):
        return Place(span.file, span.line, span.column + 1, span.end_line, span.end_column + 1)
    return Place.of(forward_code(call.cls))  # type: ignore[arg-type]
