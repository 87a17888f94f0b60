"""What only the author's eager attention does is never dropped: the interface would not do it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hfspeed.errors import RefusedError
from hfspeed.planner.decide import decide
from hfspeed.planner.load import load

EXAMPLE = Path(__file__).parents[2] / "examples" / "plain"


def test_an_eager_attention_that_does_more(tmp_path: Path) -> None:
    """The author's eager function doubles its result; the interface cannot know."""
    for file in EXAMPLE.iterdir():
        if file.suffix in {".py", ".json"}:
            (tmp_path / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    modeling = tmp_path / "modeling_plain.py"
    text = modeling.read_text(encoding="utf-8")
    start = text.index("def slow_attention(")
    begin = text.index("    return ", start)
    modeling.write_text(text[:begin] + "    value = 2 * value\n" + text[begin:], encoding="utf-8")
    with pytest.raises(RefusedError, match="eager attention"):
        decide(load(str(tmp_path), trust_remote_code=True))
