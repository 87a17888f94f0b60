"""What simulated ranks said of each kind of block, so that a small model's proof speaks for the large one."""

from __future__ import annotations

from dataclasses import dataclass, field

from hfspeed.axes.tensor import Block
from hfspeed.graph.record import Call
from hfspeed.refusal import Refusal

Key = tuple[str, tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class Verdict:
    """Whether a kind of block passes shares through, and which integers of it count split things.

    Attributes:
        split: shares pass through.
        local: attributes of the module that each rank has its share of.
        refusal: why it cannot be split, when it cannot.
    """

    split: bool = True
    local: tuple[str, ...] = ()
    refusal: Refusal | None = None


@dataclass
class Verdicts:
    """Verdicts by kind of block; a kind nobody asked about yet is taken to split."""

    known: dict[Key, Verdict] = field(default_factory=dict)
    tensor: bool = True

    def of(self, call: Call, block: Block) -> Verdict:
        """The verdict on a block."""
        return self.known.get(key(call, block), Verdict())


def key(call: Call, block: Block) -> Key:
    """What two blocks share that pass shares through for the same reasons: class and children's roles."""
    start = len(call.path) + 1
    columns = tuple(sorted(path[start:] for path in block.columns))
    rows = tuple(sorted(path[start:] for path in block.rows))
    return f"{call.cls.__module__}.{call.cls.__qualname__}", columns, rows
