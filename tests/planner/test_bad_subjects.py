"""A model that could only be served wrongly gets no plan: it is refused, with the reason and the place."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

from hfspeed.errors import RefusedError
from hfspeed.plan import Attention, History
from hfspeed.planner.decide import decide
from hfspeed.refusal import Reason

sys.path.insert(0, str(Path(__file__).parent))
from mutants import mutant

CALL = "mixed, _ = run(self, query, key, value, mask, scaling=size**-0.5, **kwargs)"
EXPAND = "        opened = self.w1(stream)\n"
LOGITS = "        logits = self.head(output.last_hidden_state[:, kept]) * self.config.logit_scale\n"
LOOP = """        for block in self.blocks:
            stream = block(stream, position_ids, mask=mask, memory=past_key_values, **kwargs)
"""
GIVEN = "        if position_ids is None:\n"
ANGLE = "positions[:, None, :, None].to(torch.float32)"

ATTENTION = {
    "a keyword nobody consumes": ("**kwargs", "position_bias=query, **kwargs", "KEYWORD_NOT_CONSUMED"),
    "a number nobody consumes": ("**kwargs", "alibi_slope=0.5, **kwargs", "KEYWORD_NOT_CONSUMED"),
    "dropout that acts": ("**kwargs", "dropout=0.1, **kwargs", "KEYWORD_NOT_CONSUMED"),
    "a mask of its own": (" mask", " torch.ones(tokens, tokens).tril()[None, None]", "MASK_NOT_CAUSAL"),
    "not causal": ("**kwargs", "is_causal=False, **kwargs", "MASK_NOT_CAUSAL"),
    "the interface twice": ("run(", "run(self, key, key, value); mixed, _ = run(", "CALLED_TWICE_INTERFACE"),
    "a scale that is computed": ("size**-0.5", "query.abs().mean()", "NUMBERS_DIFFER"),
    "a window that is a flag": ("**kwargs", "sliding_window=True, **kwargs", "VALUE_VARIES"),
    "by hand, and without a mask": ("run(", "slow_attention(", "MASK_NOT_CAUSAL"),
}
CAUSAL = {
    "the token before": "stream = torch.cat([stream[:, :1], stream[:, :-1]], dim=1)",
    "a running sum": "stream = stream.cumsum(1)",
    "attention besides": "stream = F.scaled_dot_product_attention(stream, stream, stream, is_causal=True)",
}
BEFORE_EXPAND = {
    "the mean of all tokens": "stream = stream - stream.mean(dim=1, keepdim=True)",
    "the mean of everything": "stream = stream * torch.mean(stream)",
    "the largest of everything": "stream = stream / stream.abs().max()",
    "a softmax over tokens": "stream = stream.softmax(1)",
    "the first token": "stream = stream + stream[:, :1]",
    "the last token": "stream = stream + stream[:, -1:]",
    "the number of tokens": "stream = stream * stream.shape[1] ** -0.5",
    "a convolution": "stream = F.avg_pool1d(stream.mT, 3, 1, 1).mT",
    "tokens sorted": "stream = stream.sort(1).values",
    "the call before": "stream, self.last = stream + getattr(self, 'last', 0), stream.mean()",
}
CALLS = {
    "a scale by length": ("size**-0.5", "1.0 / (size + tokens)"),
    "queries scaled by length": ("query,", "query * tokens**0.1,"),
    "queries mixed": ("query,", "query.cumsum(2),"),
    "keys one late": ("key,", "key.roll(1, 2),"),
    "a window by length": ("**kwargs", "sliding_window=tokens - 2, **kwargs"),
}
POSITIONS = {
    "positions counted in attention": (ANGLE, "torch.arange(x.shape[2], device=x.device)[:, None]"),
    "positions from the first one": (ANGLE, f"({ANGLE} - positions[0, 0])"),
    "positions by their number": (ANGLE, f"({ANGLE} / positions.shape[-1])"),
    "positions by their largest": (ANGLE, f"({ANGLE} / (1 + positions.max()))"),
}  # fmt: skip
WRAPPERS = {
    "the mean of the logits": LOGITS + "        logits = logits - logits.mean(dim=1, keepdim=True)\n",
    "a softmax over tokens": LOGITS + "        logits = logits.softmax(dim=1)\n",
    "the logits before": LOGITS + "        logits = logits + logits.roll(1, 1)\n",
    "the number of tokens": LOGITS + "        logits = logits / logits.shape[1]\n",
    "a norm over everything": LOGITS + "        logits = logits / logits.norm()\n",
    "only the last token": LOGITS.replace("[:, kept]", "[:, -1:]"),
    "the token ids": LOGITS + "        logits = logits.scatter_add(2, input_ids[..., None], logits[..., :1])\n",
    "hidden states beside the last": LOGITS.replace("output.last_hidden_state", "output.hidden_states[-1]"),
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def refused(folder: Path, *changes: tuple[str, str], **sizes: int):
    """The refusals of the mutant; fails if it gets a plan."""
    subject = mutant(folder, *changes, **sizes)
    with pytest.raises(RefusedError) as caught:
        decide(subject)
    assert str(folder) in str(caught.value)
    assert caught.value.refusals
    return caught.value.refusals


def test_the_example_itself_gets_a_plan(tmp_path: Path) -> None:
    plan = decide(mutant(tmp_path))
    assert plan.tensor
    assert plan.stages is not None
    assert not plan.refusals


@pytest.mark.parametrize("what", ATTENTION)
def test_attention_that_nothing_would_serve(what: str, tmp_path: Path) -> None:
    old, new, reason = ATTENTION[what]
    first, *_ = refused(tmp_path, (CALL, CALL.replace(old, new)))
    assert first.reason is Reason[reason]
    assert first.module == "decoder.blocks.0.mixer"
    assert first.place is not None
    assert first.place.file == str(tmp_path / "modeling_plain.py")


def test_fewer_keys_than_queries_run_as_written(tmp_path: Path) -> None:
    given = ("key, value,", "key[:, :, :1], value[:, :, :1],")
    plan = decide(mutant(tmp_path, (CALL, CALL.replace(*given))))
    assert [op.masks for op in plan.ops if isinstance(op, History)] == [("mask",)] * 2
    assert any(no.wanted == "paged attention" for no in plan.refusals)


def test_a_module_that_is_not_causal(tmp_path: Path) -> None:
    first, *_ = refused(tmp_path, ("    is_causal = True\n", "    is_causal = False\n"))
    assert first.reason is Reason.MASK_NOT_CAUSAL


def _mixes(refusals, where: str) -> None:
    first, *_ = refusals
    assert first.reason in {Reason.NUMBERS_DIFFER, Reason.CANNOT_RUN, Reason.KEYWORD_NOT_CONSUMED}
    assert re.search(rf"decoder\.blocks\.[01]\.{where}", str(first))


@pytest.mark.parametrize("what", BEFORE_EXPAND)
def test_tokens_that_mix_outside_attention(what: str, tmp_path: Path) -> None:
    _mixes(refused(tmp_path, (EXPAND, f"        {BEFORE_EXPAND[what]}\n{EXPAND}")), "expand")


@pytest.mark.parametrize("what", CAUSAL)
def test_earlier_tokens_outside_attention(what: str, tmp_path: Path) -> None:
    plan = decide(mutant(tmp_path, (EXPAND, f"        {CAUSAL[what]}\n{EXPAND}")))
    mixing = {op.path for op in plan.ops if isinstance(op, History)}
    assert mixing == {f"decoder.blocks.{layer}.expand" for layer in range(len(mixing))}
    assert mixing, "what mixes tokens is run on whole sequences"


@pytest.mark.parametrize("what", CALLS)
def test_tokens_that_mix_on_the_way_into_attention(what: str, tmp_path: Path) -> None:
    _mixes(refused(tmp_path, (CALL, CALL.replace(*CALLS[what]))), "mixer")


@pytest.mark.parametrize("what", POSITIONS)
def test_positions_that_are_not_those_given(what: str, tmp_path: Path) -> None:
    first, *_ = refused(tmp_path, POSITIONS[what])
    assert first.reason in {Reason.NUMBERS_DIFFER, Reason.VALUE_VARIES}
    assert first.module


def test_positions_that_the_decoder_counts_whatever_it_is_given(tmp_path: Path) -> None:
    """They are those of the caller, who counts from 0 as well."""
    plan = decide(mutant(tmp_path, (GIVEN, "        if True:\n")))
    assert {"position_ids", "token_positions"} & set(plan.wrapper.keywords)


def test_a_base_model_that_takes_no_positions(tmp_path: Path) -> None:
    """Counted from sizes they are handed over; made of what the model computes they cannot be."""
    changes = [("        position_ids=None,\n        past", "        past"), (GIVEN, "        if True:\n")]
    assert "token_positions" in decide(mutant(tmp_path, *changes)).wrapper.keywords
    count = "torch.arange(seen, seen + stream.shape[1], device=stream.device)[None]"
    (tmp_path / "made").mkdir()
    first, *_ = refused(tmp_path / "made", *changes, (count, "(stream[..., 0] < 9).cumsum(-1) - 1"))
    assert first.reason is Reason.POSITIONS_NOT_READ


@pytest.mark.parametrize("what", WRAPPERS)
def test_a_wrapper_that_is_not_row_by_row(what: str, tmp_path: Path) -> None:
    first, *_ = refused(tmp_path, (LOGITS, WRAPPERS[what]))
    assert first.reason in {Reason.WRAPPER_NOT_ROWWISE, Reason.CANNOT_RUN, Reason.NUMBERS_DIFFER}


LAYERS = {
    "every layer twice": LOOP.replace("block(stream,", "block(block(stream, position_ids, mask=mask, **kwargs),"),
    "the first layer again": LOOP + "        stream = self.blocks[0](stream, position_ids, mask=mask, **kwargs)\n",
    "one layer for all": LOOP.replace("in self.blocks:", "in [self.blocks[0]] * 2:"),
}


@pytest.mark.parametrize("what", LAYERS)
def test_attention_that_is_called_more_than_once(what: str, tmp_path: Path) -> None:
    """Each call gets keys and values of its own; with other numbers in one of them it is refused."""
    found = decide(mutant(tmp_path, (LOOP, LAYERS[what])))
    assert max(op.calls for op in found.ops if isinstance(op, Attention)) == 2
    assert found.tensor
    (tmp_path / "other").mkdir()
    turn = CALL.replace("scaling=", "scaling=(1 + getattr(self, 'turn', 0)) *") + "\n        self.turn = 1"
    first, *_ = refused(tmp_path / "other", (LOOP, LAYERS[what]), (CALL, turn))
    assert first.reason is Reason.CALLED_TWICE_INTERFACE
    assert first.module.endswith(".mixer")
    assert first.place is not None


LONG = {
    "above a number of tokens": "stream.shape[1] > 700",
    "below a number of tokens": "stream.shape[1] < 700",
    "far above": "stream.shape[1] > 9_000",
    "above a number of values": "stream.numel() > 90_000",
}


@pytest.mark.parametrize("what", LONG)
def test_what_only_long_rows_show(what: str, tmp_path: Path) -> None:
    """Served side by side, short sequences make long rows."""
    body = f"        if {LONG[what]}:\n            stream = stream.tanh()\n"
    first, *_ = refused(tmp_path, (EXPAND, body + EXPAND))
    assert first.reason is Reason.VALUE_VARIES
    assert first.module == "decoder.blocks.0.expand"
    assert first.place is not None


def test_an_operation_that_is_run_elsewhere_too(tmp_path: Path) -> None:
    """The module multiplies anyhow; the branch does so at another line, which short rows never reach."""
    body = "        if stream.shape[1] > 40:\n            stream = stream * 1.1\n"
    first, *_ = refused(tmp_path, (EXPAND, body + EXPAND))
    assert first.reason is Reason.VALUE_VARIES
    assert first.place is not None
    assert "stream * 1.1" in Path(first.place.file).read_text("utf-8").split("\n")[first.place.line - 1]


def test_what_only_late_positions_show(tmp_path: Path) -> None:
    """Sequences may be as long as nothing changes; a change among the first tokens leaves nothing to serve."""
    (tmp_path / "late").mkdir()
    late = decide(mutant(tmp_path / "late", (ANGLE, f"({ANGLE} * (2 if positions.max() > 5000 else 1))")))
    assert late.wrapper.limit == 5001
    (tmp_path / "early").mkdir()
    first, *_ = refused(tmp_path / "early", (ANGLE, f"({ANGLE} * (2 if positions.max() > 50 else 1))"))
    assert first.reason is Reason.VALUE_VARIES


def test_another_way_to_the_same_numbers_is_no_fault(tmp_path: Path) -> None:
    """A table that grows when a row is long, as rotary embeddings used to keep one."""
    grown = "        if stream.shape[1] > 700:\n            stream = torch.stack([stream, stream]).mean(0)\n"
    assert not decide(mutant(tmp_path, (EXPAND, grown + EXPAND))).refusals
