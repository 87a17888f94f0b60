"""What one run of a model is written down as: a call per module, with its arguments, result and dataflow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import fx, nn

from hfspeed.graph.positions import Stack
from hfspeed.plan.paths import outer
from hfspeed.refusal import Place


def written(value: Any) -> Any:
    """Stands in a graph for: this tensor was written to, through itself or through a view of it."""
    return value


def closed(*given: Any, **named: Any) -> Any:
    """Stands in a graph for all that a module does which nobody looks into."""
    raise NotImplementedError("a name in graphs, never run")


@dataclass
class Call:
    """One call of one module.

    Attributes:
        path: dotted name in the model; the model itself is ``""``.
        module: the instance called.
        args / kwargs: what it was called with (tensors are copies if values are kept).
        output: what it returned.
        graph: its dataflow; ``call_module`` targets are paths relative to the model.
    Every node has ``meta``: ``value`` (the tensor, kept alive), ``span`` (`Span` or ``None``), ``stack`` (the frames
    it was computed in) and ``shadow`` (the value of a meta tensor, where it depends on no weights, else ``None``).
    """

    path: str
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    graph: fx.Graph
    output: Any = None

    @property
    def cls(self) -> type[nn.Module]:
        """The author's class."""
        return type(self.module)

    @property
    def closed(self) -> bool:
        """Whether nobody looked inside: the module decides by values, which meta tensors do not have."""
        return any(node.target is closed for node in self.graph.nodes)


@dataclass
class Recording:
    """All calls of one run, in the order in which they began; ``again`` lists later calls of a path.

    ``reads`` are the plain values that the author's code read off tensors, with the module that did, and ``read_at``
    where each was read. ``like`` has, by path, layers that did not run, and the equal one of which all that is known is
    true of them as well. ``strange`` are calls that no graph tells all of: path, what, and where.
    """

    model: nn.Module
    calls: dict[str, Call] = field(default_factory=dict)
    again: dict[str, list[Call]] = field(default_factory=dict)
    reads: list[tuple[str, Any]] = field(default_factory=list)
    read_at: list[Stack] = field(default_factory=list)
    output: Any = None
    like: dict[str, str] = field(default_factory=dict)
    strange: list[tuple[str, str, Place | None]] = field(default_factory=list)

    def same(self, path: str) -> str:
        """The place that ran in the stead of ``path``: itself, or the same place in an equal layer."""
        for above in (*outer(path), path) if self.like else ():
            if above in self.like:
                return self.like[above] + path[len(above) :]
        return path

    def read(self, path: str, value: Any, at: Stack) -> None:
        """Note a plain value that the module at ``path`` read, and where."""
        self.reads.append((path, value))
        self.read_at.append(at)
