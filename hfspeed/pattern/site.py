"""One module's forward as fusions see it: its recorded graph, its source, and the edits gathered so far."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NoReturn

from torch import fx, nn

from hfspeed.graph.nodes import is_linear
from hfspeed.graph.positions import Span
from hfspeed.graph.record import Call
from hfspeed.pattern.edit import Change, changed
from hfspeed.plan import Op
from hfspeed.plan.segments import Segment
from hfspeed.refusal import Place, Reason, Refusal, Refused
from hfspeed.source import Recovered, recover


@dataclass
class Site:
    """A module that was called once in a recorded run, and what is being done to its forward.

    A node that a fusion has taken carries ``meta["claimed"]``; later fusions leave it alone.

    Attributes:
        call: the recorded call.
        ops: what the fusions decided.
        changes: source changes, applied together at the end.
        notes: one phrase per change, for people.
        promised: names on the module that the ops must provide.
        refusals: why fusions did not apply.
        split: names of children whose results may be split over ranks.
        read: names of the module's own parameters that other code reads.
        methods: other methods of the class that are rewritten, by name.
        regroup: rows of packed projections are put in another order even where they could be split as they are.
        segments: how those of ``split`` are split that are packed.
        as_written: packed projections are split by heads without a change of the code that cuts them.
    """

    call: Call
    ops: list[Op] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    promised: list[str] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    split: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()
    methods: dict[str, str] = field(default_factory=dict)
    regroup: bool = False
    segments: dict[str, tuple[Segment, ...]] = field(default_factory=dict)
    as_written: bool = False

    def __post_init__(self) -> None:
        for node in self.graph.nodes:  # one recording may be looked at several times
            node.meta.pop("claimed", None)

    @property
    def path(self) -> str:
        """Dotted name of the module in the model."""
        return self.call.path

    @property
    def graph(self) -> fx.Graph:
        """The recorded dataflow."""
        return self.call.graph

    @cached_property
    def recovered(self) -> Recovered:
        """The author's forward as text.

        Raises:
            Refused: it cannot be recovered.
        """
        return recovered_of(self.call.cls, "forward")  # type: ignore[arg-type]  # mypy takes no class for hashable

    def below(self, name: str) -> str:
        """The dotted path in the model of the child ``name``."""
        return f"{self.path}.{name}" if self.path else name

    def free_name(self, wanted: str) -> str:
        """``wanted``, or a name like it that the module does not have yet."""
        taken = set(dir(self.call.module)) | {op.path.rpartition(".")[2] for op in self.ops}
        while {wanted, f"{wanted}_sizes"} & taken:
            wanted += "_fused"
        return wanted

    def free_locals(self, names: list[str]) -> list[str]:
        """Local variable names like ``names`` that the forward does not use."""
        used = {n.id for n in ast.walk(self.recovered.tree) if isinstance(n, ast.Name)}
        used |= {n.arg for n in ast.walk(self.recovered.tree) if isinstance(n, ast.arg)}
        used |= {name for change in self.changes for name in change.names}
        found: list[str] = []
        for name in names:
            while name in used:
                name += "_out"  # noqa: PLW2901  until it is free
            used.add(name)
            found.append(name)
        return found

    def place(self, node: fx.Node) -> Place | None:
        """The author's line for a node."""
        span = node.meta.get("span")
        if not isinstance(span, Span):
            return None
        return Place(span.file, span.line, span.column + 1, span.end_line, span.end_column + 1)

    def expression(self, node: fx.Node) -> ast.AST | None:
        """The expression of the forward that computed ``node``; ``None`` if it stands elsewhere."""
        span = node.meta.get("span")
        if not isinstance(span, Span) or not span.direct or span.file != self.recovered.file:
            return None
        return self.recovered.node_at(span.line, span.end_line, span.column, span.end_column)

    def plain_call(self, node: fx.Node, wanted: str) -> ast.Call:
        """The one call ``self.child(value)`` that computed ``node``.

        Raises:
            Refused: the child is called twice, through a helper, or with more than a value.
        """
        name = str(node.target)[len(self.path) + 1 :]
        if self._calls[node.target] > 1:
            self._no(wanted, Reason.CALLED_TWICE, f"`{name}` is called more than once", node)
        found = self.expression(node)
        if not isinstance(found, ast.Call):
            self._no(
                wanted,
                Reason.CALLED_THROUGH_HELPER,
                f"`{name}` is not called by the forward itself",
                node,
                f"call `self.{name}(…)` in `forward`",
            )
        values = [*found.args, *(k.value for k in found.keywords)]
        if len(values) != 1 or isinstance(values[0], ast.Starred) or "." in name:
            self._no(wanted, Reason.NOT_A_PLAIN_CALL, f"`{name}` is not called with one value", node)
        return found

    @cached_property
    def _calls(self) -> Counter[object]:
        return Counter(node.target for node in self.graph.nodes if node.op == "call_module")

    def _no(self, wanted: str, reason: Reason, found: str, node: fx.Node, help: str = "") -> NoReturn:
        raise Refused(Refusal(wanted, reason, found, self.path, self.place(node), 1, help))

    def module(self, node: fx.Node) -> nn.Module:
        """The child called at ``node``."""
        found = node.meta["module"]
        assert isinstance(found, nn.Module)
        return found

    def free_linears(self) -> list[fx.Node]:
        """Calls of plain linears that no fusion has claimed."""
        return [n for n in self.graph.nodes if is_linear(n) and not n.meta.get("claimed")]

    def text(self) -> str:
        """The forward with every change applied."""
        return changed(self.recovered, self.changes)


@lru_cache(maxsize=1024)
def recovered_of(cls: type[nn.Module], method: str) -> Recovered:
    """A method as text; many instances share one class, and so one tree.

    Raises:
        Refused: it cannot be recovered.
    """
    return recover(cls, method)
