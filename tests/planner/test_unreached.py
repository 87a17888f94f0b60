"""What attention does with scores or weights only where they are large, small or many is refused at its line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hfspeed.errors import RefusedError
from hfspeed.plan import Attention, History
from hfspeed.planner.decide import decide
from hfspeed.planner.load import Subject

sys.path.insert(0, str(Path(__file__).parent))
from mutants import mutant

SOFTMAX = "    probabilities = scores.softmax(-1, dtype=torch.float32).to(query.dtype)\n"
ADDED = "    if attention_mask is not None:\n        scores ="
CALL = """        run = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, slow_attention)
        mixed, _ = run(self, query, key, value, mask, scaling=size**-0.5, **kwargs)
"""
HAND = """        count = key.shape[2]
        ahead = torch.ones(tokens, count, dtype=torch.bool, device=key.device).triu(1 + count - tokens)
        mask = torch.zeros(tokens, count, device=key.device).masked_fill(ahead, -1e9)
        mixed, _ = slow_attention(self, query, key, value, mask, size**-0.5)
"""
MASKED = (
    "import create_causal_mask",
    "import create_causal_mask as _made\n\n\ndef create_causal_mask(**_):\n    return None",
)

HANGS = {
    "a bound of scores": "scores = scores.clamp(-15, 15)",
    "a bound by another tensor": "scores = torch.minimum(scores, scores.new_full((), 100.0))",
    "a bound of one side": "scores = 500 - F.relu(500 - scores)",
    "a choice of many": "scores = scores.where(scores >= scores.topk(min(200, key.shape[2]), -1)[0][..., -1:], -1e9)",
    "an order": "scores = scores.gather(-1, scores.argsort(-1).argsort(-1)) * 0 + scores",
    "a module that bounds": "scores = nn.Hardtanh(-300.0, 300.0)(scores)",
}
AFTER = {
    "a threshold": "probabilities = torch.where(probabilities < 1e-3, 0.0, probabilities)",
    "another threshold": "probabilities = F.threshold(probabilities, 1e-5, 0.0)",
    "a bound of weights": "probabilities = probabilities.clamp(max=0.99)",
}
EAGER = "the largest taken away"
SERVED = {
    "a bound beyond all": "scores = scores.clamp(torch.finfo(scores.dtype).min, 50000.0)",
    "the larger of scores and the least number": "scores = torch.max(scores, torch.tensor(-3.4e38))",
    EAGER: "scores = scores - scores.max(-1, keepdim=True).values",
    "a cap": "scores = 20 * torch.tanh(scores / 20)",
    "numbers that are none": "scores = scores.nan_to_num(neginf=-1e9)",
}


def changed(line: str, *, after: bool = False) -> tuple[str, str]:
    return (SOFTMAX, f"{SOFTMAX}    {line}\n") if after else (ADDED, f"    {line}\n{ADDED}")


def subject(folder: Path, line: str, *, after: bool = False, hand: bool) -> Subject:
    return mutant(folder, changed(line, after=after), *([(CALL, HAND), MASKED] if hand else []))


@pytest.mark.parametrize(
    ("what", "hand"), [*((what, True) for what in HANGS | AFTER), ("a bound of scores", False), ("a threshold", False)]
)
def test_what_hangs_on_the_size_or_number_of_scores_is_for_no_kernel(what: str, hand: bool, tmp_path: Path) -> None:
    """It is refused, or runs as it is written on whole sequences; the line is told in either case."""
    line = (HANGS | AFTER)[what]
    try:
        plan = decide(subject(tmp_path, line, after=what in AFTER, hand=hand))
    except RefusedError as no:
        told = no.refusals
    else:
        told = plan.refusals
        assert [type(op) for op in plan.ops if isinstance(op, Attention | History)] == [History, History]
    first = next(no for no in told if "or how many" in no.found)
    assert first.place is not None
    assert Path(first.place.file).read_text().splitlines()[first.place.line - 1].strip() == line


@pytest.mark.parametrize("what", SERVED)
def test_what_does_not_is_served(what: str, tmp_path: Path) -> None:
    hand = what != EAGER
    plan = decide(subject(tmp_path, SERVED[what], hand=hand))
    assert [op.measured for op in plan.ops if isinstance(op, Attention)] == [hand, hand]
