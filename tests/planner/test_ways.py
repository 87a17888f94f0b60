"""A branch on a size that only the full model takes is refused: it was never proven."""

from __future__ import annotations

from pathlib import Path

import pytest

from hfspeed.errors import RefusedError
from hfspeed.planner.decide import decide
from hfspeed.planner.load import load
from hfspeed.refusal import Reason

EXAMPLE = Path(__file__).parents[2] / "examples" / "plain"


def test_a_branch_on_a_size(tmp_path: Path) -> None:
    """The feed-forward takes another way above 130 elements, where no small model goes."""
    for file in EXAMPLE.iterdir():
        if file.suffix in {".py", ".json"}:
            (tmp_path / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    modeling = next(tmp_path.glob("modeling_*.py"))
    text = modeling.read_text(encoding="utf-8")
    first = text.index("def forward(self, stream", text.index("class Expand"))
    body = text.index("\n", first) + 1
    text = text[:body] + "        if stream.shape[-1] > 130:\n            stream = stream.tanh()\n" + text[body:]
    modeling.write_text(text, encoding="utf-8")
    with pytest.raises(RefusedError) as caught:
        decide(load(str(tmp_path), trust_remote_code=True))
    refusal = caught.value.refusals[0]
    assert refusal.reason is Reason.CANNOT_RUN
    assert "`tanh`" in refusal.found
    assert refusal.place is not None
    assert refusal.place.file == str(modeling)
