"""A plan in which modules with states stay whole, as where their weights are quantised and cannot be cut by rows."""

from __future__ import annotations

from dataclasses import replace

from hfspeed.plan.ops import Column, Keep, Local, Norm, Op, Row, Stacked, Whole
from hfspeed.plan.plan import Plan
from hfspeed.plan.state_ops import Recurrence, Share


def whole_mixers(plan: Plan) -> Plan:
    """``plan`` with every module whose states are split whole on each rank, with all that is below it."""
    split = [op.path for op in plan.ops if isinstance(op, Recurrence) and op.segments]
    if not split:
        return plan
    inside = tuple(f"{path}." for path in split)

    def made(op: Op) -> Op | None:
        if op.path not in split and not op.path.startswith(inside):
            return op
        match op:
            case Column() | Row():
                return Whole(op.path, op.inputs, op.outputs, op.bias)
            case Stacked():
                return replace(op, split=False, segments=())
            case Recurrence():
                return replace(op, segments=())
            case Norm() | Keep():
                return replace(op, units=0)
            case Share():
                return Keep(op.path) if op.stored else None
            case Local():
                return None
        return op

    return replace(plan, ops=tuple(one for op in plan.ops if (one := made(op)) is not None))
