"""What proofs do not show, because they ask in one way, near the start, with rows and token ids of their choice."""

from __future__ import annotations

from functools import partial

from hfspeed.plan import Plan
from hfspeed.planner.asked import otherwise
from hfspeed.planner.constructed import unfixed
from hfspeed.planner.far import far
from hfspeed.planner.lengths import lengths
from hfspeed.planner.noticed import noticed
from hfspeed.planner.outside import outside
from hfspeed.planner.study import Study
from hfspeed.refusal import Refusal


def unseen(small: Study, plan: Plan) -> Refusal | None:
    """A refusal if it is not the model that is loaded, or answers otherwise when asked so, or of other tokens."""
    every = (unfixed, otherwise, outside, far, lengths, partial(noticed, plan=plan))
    return next((no for look in every if (no := look(small))), None)
