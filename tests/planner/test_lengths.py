"""A branch on how many tokens a row has is found whatever number it asks for, and refused only if it matters."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from hfspeed.errors import RefusedError
from hfspeed.planner.counts import Asked, Counting
from hfspeed.planner.decide import decide, small_study
from hfspeed.planner.lengths import lengths

sys.path.insert(0, str(Path(__file__).parent))
from mutants import mutant

LAST = "        return self.expand(self.between(stream)) + stream"
TWICE = "        stream = stream * (2 if {} else 1)\n" + LAST
MATTER = (
    "stream.shape[1] == 48",
    "stream.shape[1] in {700, 48}",
    "40 < stream.size(1) <= 43",
    "stream[..., 0].numel() % 37 == 0",
    "(stream.shape[1] + 2) // 50 == 1",
    "not stream.shape[1] - 77",
    "stream[0].numel() / stream.shape[-1] * 0.5 == 24",
    "max(stream.shape[1], 43) == 44",
)
HARMLESS = (
    "        stream = stream * 2 * 0.5 if stream.shape[1] == 48 else stream\n" + LAST,
    "        more = -stream.shape[1] % 16\n"
    "        padded = F.pad(stream, (0, 0, 0, more)) if more else stream\n"
    "        stream = padded.unflatten(1, (-1, 16)).flatten(1, 2)[:, : stream.shape[1]]\n" + LAST,
)


@pytest.mark.parametrize("what", MATTER)
def test_refused_at_its_line(what: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    subject = mutant(tmp_path, (LAST, TWICE.format(what)))
    found = lengths(small_study(subject))
    assert found is not None
    assert found.place is not None
    line = Path(found.place.file).read_text("utf-8").splitlines()[found.place.line - 1]
    assert what in line, found


def test_the_plan_is_refused(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    with pytest.raises(RefusedError, match="in a row of 48 they are answered otherwise than in one of 49"):
        decide(mutant(tmp_path, (LAST, TWICE.format(MATTER[0]))))


@pytest.mark.parametrize("code", HARMLESS)
def test_served_where_every_way_gives_the_same(code: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    assert lengths(small_study(mutant(tmp_path, (LAST, code)))) is None


def test_a_count_knows_other_rows() -> None:
    asked = Asked(61)
    with Counting(asked):
        tokens = torch.zeros(1, 61, 8).shape[1]
        made = [tokens * 3 - 1, 200 - tokens, 7 % tokens, tokens // 4, tokens**2, -tokens, abs(-tokens), tokens / 2]
        assert tokens < 2 or tokens
    assert {one.answers.tolist().index(False) + 1 for one in asked.branches.values()} == {2}
    assert [one.along[9].item() for one in made] == [29, 190, 7, 2, 100, -10, 10, 5.0]  # type: ignore[attr-defined]
    assert made[:2] == [182, 139]
    assert isinstance(tokens, int)
