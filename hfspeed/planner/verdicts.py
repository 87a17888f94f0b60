"""What running modules alone said of each kind, so that a small model's proof speaks for the large one."""

from __future__ import annotations

from dataclasses import dataclass, field

from hfspeed.graph.nodes import linears
from hfspeed.graph.record import Call
from hfspeed.refusal import Refusal

Key = tuple[str, tuple[str, ...]]


@dataclass(frozen=True)
class Verdict:
    """What a kind of module allows.

    Attributes:
        fused: its rewritten forward computes what the author's does.
        split: shares pass through it.
        local: integer attributes of it of which each rank has its share.
        refusal: why not, when not.
        regroup: rows of a packed projection change places, because shares do not pass through as they are.
        as_written: a packed projection is split by heads, and the code that cuts it stays as it is.
        widths: where shares are given another shape, the number that shares change is left to be found.
        without: fusions that are left out, because with them it computes something else.
        own: tensors of the module's own of which each rank has its part, and the dimension.
        counts: of each of ``local`` of a module with states, the names of what it may count.
    """

    fused: bool = True
    split: bool = True
    local: tuple[str, ...] = ()
    refusal: Refusal | None = None
    regroup: bool = False
    widths: bool = False
    as_written: bool = False
    without: tuple[str, ...] = ()
    counts: tuple[tuple[str, frozenset[str]], ...] = ()
    own: tuple[tuple[str, int], ...] = ()


@dataclass
class Verdicts:
    """Verdicts by kind of module; a kind nobody asked about yet is taken to allow everything."""

    known: dict[Key, Verdict] = field(default_factory=dict)
    tensor: bool = True
    stages: bool = True
    masks: bool = True
    rows: bool = False
    one_way: bool = False
    handed: bool = False
    """What crosses a cut is handed down from the base model to the decoder below it, step by step."""
    histories: frozenset[Key] = frozenset()
    ranks: int = 2
    """On how many ranks shares are tried; those of a model whose heads no 2 divide are tried on more."""
    barred: frozenset[tuple[Key, str]] = frozenset()
    """Kinds of modules with fusions that values of the large model rule out, and so of the small one as well."""

    def of(self, call: Call) -> Verdict:
        """The verdict on a module."""
        return self.known.get(key(call), Verdict())


def key(call: Call) -> Key:
    """What makes two modules of one kind: their class, and the linears they call in order."""
    start = len(call.path) + 1
    called = tuple(str(node.target)[start:] for node in linears(call.graph))
    return f"{call.cls.__module__}.{call.cls.__qualname__}", called
