"""What proofs do not show, because they ask in one way, near the start, and with token ids of their choice."""

from __future__ import annotations

from hfspeed.planner.asked import otherwise
from hfspeed.planner.far import far
from hfspeed.planner.noticed import noticed
from hfspeed.planner.study import Study
from hfspeed.refusal import Refusal


def unseen(small: Study) -> Refusal | None:
    """A refusal if the small model answers otherwise when it is asked otherwise, far on, or of ids that repeat."""
    return otherwise(small) or far(small) or noticed(small)
