"""A fusion is withdrawn where other code still reads what it takes away, such as the dtype of a projection."""

from __future__ import annotations

import re
from dataclasses import replace

from hfspeed.errors import PlanError
from hfspeed.pattern.replacement import place_of
from hfspeed.plan import Heads, Plan, Stacked
from hfspeed.plan.linears import taken
from hfspeed.planner.mismatch import Mismatch
from hfspeed.planner.study import Study
from hfspeed.planner.verdicts import Verdict, Verdicts, key
from hfspeed.refusal import Reason, Refusal

_MISSING = re.compile(r"AttributeError: '\w+' object has no attribute '(\w+)'")


def withdrawn(small: Study, verdicts: Verdicts, plan: Plan, error: Mismatch | PlanError) -> bool:
    """Leave modules as written whose parts the failed proof missed; whether there are any."""
    missing = _MISSING.search(error.refusal.found) if isinstance(error, Mismatch) else None
    found = False
    for op in plan.ops if missing else ():
        names = op.parts if isinstance(op, Heads | Stacked) else taken(op)
        if missing is None or missing.group(1) not in names:
            continue
        call = small.recording.calls[op.path.rpartition(".")[0]]
        known = verdicts.known.get(key(call), Verdict())
        if known.fused:
            told = f"`{missing.group(1)}` is read by other code, so it stays a module of its own"
            no = Refusal("fusion", Reason.USED_ELSEWHERE, told, call.path, place_of(call))
            verdicts.known[key(call)] = replace(known, fused=False, refusal=no)
            found = True
    return found
