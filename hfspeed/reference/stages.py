"""Which layers live on a stage of the pipeline, and what stands in for the others."""

from __future__ import annotations

from torch import nn

from hfspeed.errors import PlanError
from hfspeed.plan import Plan, shares
from hfspeed.reference import layers


def cut(plan: Plan, root: nn.Module, stage: tuple[int, int] | None) -> set[str]:
    """Put placeholders where modules live on other stages; returns their paths."""
    stages = plan.stages
    if stages is None:
        if stage is not None and stage[1] > 1:
            raise PlanError(f"{plan.architecture} cannot be cut into {stage[1]} stages")
        return set()
    number, count = stage or (0, 1)
    own = range(*shares.cuts(stages.count, count)[number])
    gone = {f"{stages.layers}.{at}" for at in range(stages.count) if at not in own}
    gone.update(stages.first if number > 0 else ())
    gone.update((*stages.last, plan.wrapper.head) if number < count - 1 else ())
    for path in gone:
        above, _, name = path.rpartition(".")
        in_tuple = stages.tuple_output and above == stages.layers
        absent = layers.Absent(root.get_submodule(path), tuple_output=in_tuple, rest=stages.rest if in_tuple else 0)
        setattr(root.get_submodule(above), name, absent)
    root.get_submodule(stages.decoder).hands_on = number < count - 1  # type: ignore[assignment]
    return gone
