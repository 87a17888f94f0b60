"""All shapes by name: a number of the list of reports, a letter, and words."""

from __future__ import annotations

import answering
import attending
import choosing
import computing
import heading
import projecting

SHAPES = answering.SHAPES | attending.SHAPES | projecting.SHAPES | computing.SHAPES | choosing.SHAPES | heading.SHAPES
