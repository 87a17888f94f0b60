"""What proofs do not show, because they ask in one way, near the start, and with token ids of their choice."""

from __future__ import annotations

from hfspeed.planner.asked import otherwise
from hfspeed.planner.constructed import unfixed
from hfspeed.planner.far import far
from hfspeed.planner.noticed import noticed
from hfspeed.planner.study import Study
from hfspeed.refusal import Refusal


def unseen(small: Study) -> Refusal | None:
    """A refusal if it is not the model that is loaded, or answers otherwise when asked so, far on or of other ids."""
    return unfixed(small) or otherwise(small) or far(small) or noticed(small)
