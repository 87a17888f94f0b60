"""Table, layers and head in one class: cut where hidden states become logits, or refused where both are mixed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from hfspeed.errors import HfspeedError, RefusedError
from hfspeed.plan import Attention
from hfspeed.planner.decide import decide
from hfspeed.planner.study import study
from hfspeed.planner.wrapper import whereabouts
from hfspeed.reference.asking import asked, scores
from hfspeed.reference.ending import Tail

sys.path.insert(0, str(Path(__file__).parent))
from one_class import written


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


SEQUENCE = "self.head = nn.Sequential(nn.Linear(config.n_embd, config.n_embd), nn.GELU(), nn.Linear(config.n_embd, 96))"
# how it ends: the head, where it is cut, whether hidden states are what goes in there, and what it returns early
ENDS = {
    "a plain head": ("", "return self.head(self.norm(x))", "head", True, "return self.norm(x)"),
    "the last token alone": (
        "",
        "x = self.norm(x)\nreturn CausalLMOutput(logits=self.head(x[:, -1:]))",
        "norm",
        False,
        "return self.norm(x)",
    ),
    "a method": ("", "return None, self.helper(x)", "norm", True, "return x"),
    "a product with the table": (
        "pass",
        "x = self.norm(x)\nreturn {'logits': F.linear(x, self.words.weight)}",
        "norm",
        False,
        "return self.norm(x)",
    ),
    "several modules": (
        SEQUENCE,
        "y = self.head(self.norm(x))\nreturn (y * 0.1,)",
        "head",
        True,
        "return self.norm(x)",
    ),
}


@pytest.mark.parametrize("how", ENDS)
def test_where_it_ends(how: str, tmp_path: Path) -> None:
    head, text, at, given, returned = ENDS[how]
    subject = written(tmp_path, text, head) if head else written(tmp_path, text)
    small = study(subject.model_class, subject.config, real=True, interface=False)
    base, found = whereabouts(small.model, small.recording)
    assert base == ""
    assert found is not None
    assert (found.ending.at, found.ending.given) == (at, given)
    assert found.changes[0].text == returned
    assert {path for path, _ in found.ending.absent} >= {"words", "places", "h.0", "h.1"}


ENDS["a question that no working model says yes to"] = (
    "",
    "y = self.head(self.norm(x))\nif not self.training and torch.isnan(y).any():\n    y = y * 0\nreturn y",
    "head",
    True,
    "return self.norm(x)",
)


@pytest.mark.parametrize("how", ["the last token alone", "a method", "a question that no working model says yes to"])
def test_served_exactly(how: str, tmp_path: Path) -> None:
    head, text, *_ = ENDS[how]
    plan = decide(written(tmp_path, text, head) if head else written(tmp_path, text))
    assert plan.wrapper.base == ""
    assert plan.wrapper.limit == 128
    assert all(op.split for op in plan.ops if isinstance(op, Attention))
    assert plan.stages is not None
    assert all(proof.error <= proof.bound for proof in plan.proofs)


def test_logits_of_hidden_states_are_the_authors(tmp_path: Path) -> None:
    subject = written(tmp_path, "return (self.head(self.norm(x)) * 3).tanh()")
    plan = decide(subject)
    model = subject.model_class(subject.config).eval()
    seen: list[torch.Tensor] = []
    model.norm.register_forward_hook(lambda _module, _args, output: seen.append(output))
    with torch.no_grad():
        wanted = scores(model(**asked(model, torch.arange(20)[None])))[0]
        found = Tail(model, plan)(seen[0][0])
    assert torch.allclose(wanted, found, atol=1e-5)


MORE = {
    "a token's own id": "logits = torch.where(input_ids[..., None] == 7, y * 2, y)",
    "a position": "logits = torch.where(places[None, :, None] == 100, y * 2, y)",
    "the number of tokens": "logits = y / count",
    "all tokens, beyond a threshold": "logits = y * torch.where(y.abs().amax() > 1e6, 0.5, 1.0)",
    "long rows": "logits = y if count < 60 else y * 0.5",
}


@pytest.mark.parametrize("what", MORE)
def test_logits_of_more_than_hidden_states(what: str, tmp_path: Path) -> None:
    line = MORE[what]
    subject = written(tmp_path, f"y = self.head(self.norm(x))\n{line}\nreturn CausalLMOutput(logits=logits)")
    with pytest.raises(RefusedError) as no:
        decide(subject)
    place = no.value.refusals[0].place
    assert place is not None
    assert Path(place.file).read_text().splitlines()[place.line - 1].strip() == line


def test_a_head_that_is_called_twice_is_told_at_its_class(tmp_path: Path) -> None:
    with pytest.raises(HfspeedError, match="keep the token table and the decoder in one child"):
        decide(written(tmp_path, "return self.head(self.norm(x)) + self.head(self.h[0](x))"))


def test_what_late_layers_read_of_early_ones_is_seen_at_every_cut(tmp_path: Path) -> None:
    loop = """        kept = []
        for number, block in enumerate(self.h):
            if number > 1:
                x = x + kept.pop()
            x = block(x)
            if number < 1:
                kept.append(x)
"""
    subject = written(tmp_path, "return self.head(self.norm(x))", loop=loop)
    subject.config.n_layer = 3
    plan = decide(subject)
    assert plan.stages is None
    assert any(no.wanted == "stages" and "differ" in no.reason.value for no in plan.refusals)
