"""A plan in the making."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hfspeed.axes.mixers import Mixing
from hfspeed.axes.tensor import Block
from hfspeed.graph.record import Call
from hfspeed.pattern.site import Site
from hfspeed.plan import Op, Stages, Wrapper
from hfspeed.plan.paths import within
from hfspeed.planner.study import Study
from hfspeed.planner.verdicts import Verdicts, key
from hfspeed.refusal import Refusal


@dataclass
class Draft:
    """A plan in the making, and what it was made from.

    Attributes:
        study: the model looked at.
        blocks: how each module could be split, before verdicts.
        views: the calls that blocks were found in, some with a look into children.
        sites: the modules whose forward is rewritten.
        mixed: modules with states that are split.
        shaped: by module, the numbers in its shapes that ranks divide.
        refusals: what was not done.
    """

    study: Study
    verdicts: Verdicts
    wrapper: Wrapper
    blocks: dict[str, Block] = field(default_factory=dict)
    views: dict[str, Call] = field(default_factory=dict)
    sites: dict[str, Site] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    mixed: dict[str, Mixing] = field(default_factory=dict)
    shaped: dict[str, set[int]] = field(default_factory=dict)
    stages: Stages | None = None
    tensor: bool = True
    refusals: list[Refusal] = field(default_factory=list)

    def calls(self) -> Iterator[Call]:
        """The calls inside the base model."""
        base = self.wrapper.base
        for path, call in self.study.recording.calls.items():
            if path == base or not base or path.startswith(f"{base}."):
                yield call

    def apart(self, call: Call) -> bool:
        """Whether a module is run on whole sequences."""
        return call.path in self.study.written or key(call) in self.verdicts.histories

    def inside_written(self, path: str) -> bool:
        """Whether a module lies in one that attends as written, or is one: nothing is rewritten or split there."""
        return within(path, self.study.written)
