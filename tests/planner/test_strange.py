"""Modules that are called with other weights than their own, or under a transform, are refused at that line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hfspeed.errors import RefusedError
from hfspeed.planner.decide import decide

sys.path.insert(0, str(Path(__file__).parent))
from mutants import mutant

LAST = "        return self.expand(self.between(stream)) + stream"
HALF = "halves = {name: one * 0.5 for name, one in self.expand.named_parameters()}"
SWAP = "self.expand.w2._parameters['weight'] = nn.Parameter(self.expand.w1.weight.t().contiguous())"

STRANGE = {
    "other weights": (HALF, "opened = torch.func.functional_call(self.expand, halves, (self.between(stream),))"),
    "other weights of a linear": (
        "one = self.expand.w1",
        "opened = torch.func.functional_call(one, {'weight': one.weight * 2}, (stream,))[..., :32]",
    ),
    "a transform": ("", "opened = torch.func.vmap(self.expand)(self.between(stream))"),
    "a gradient": ("", "opened = torch.func.jvp(self.expand, (stream,), (stream,))[1]"),
}


@pytest.mark.parametrize("what", STRANGE)
def test_refused_at_the_line(what: str, tmp_path: Path) -> None:
    before, line = STRANGE[what]
    text = "".join(f"        {one}\n" for one in (before, line, "return opened + stream") if one)
    with pytest.raises(RefusedError) as no:
        decide(mutant(tmp_path, (LAST, text)))
    (first, *_) = no.value.refusals
    assert "is called" in first.found
    assert first.place is not None
    assert Path(first.place.file).read_text().splitlines()[first.place.line - 1].strip() == line


def test_weights_put_in_place_of_others(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="other weights than its own"):
        decide(mutant(tmp_path, (LAST, f"        {SWAP}\n{LAST}")))


def test_transforms_of_plain_functions_are_not_strange(tmp_path: Path) -> None:
    text = "        twice = torch.func.vmap(lambda one: one * 2)(stream)\n        stream = twice * 0.5\n"
    assert decide(mutant(tmp_path, (LAST, text + LAST))).proofs
