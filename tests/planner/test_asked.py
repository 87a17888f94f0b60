"""Whatever way generation asks a model in, and whatever its code raises: the author's answer, or a refusal there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from hfspeed.errors import HfspeedError, RefusedError, SubjectError
from hfspeed.plan import History, Keep, Norm, Stacked
from hfspeed.planner.decide import decide
from hfspeed.planner.precision import in_dtype
from hfspeed.refusal import Reason

sys.path.insert(0, str(Path(__file__).parent))
from mutants import mutant

LOOP = "        for block in self.blocks:\n"
FIRST = "        stream = self.mixer(self.before(stream)"
LAST = "        return self.expand(self.between(stream)) + stream"
NORM = "        return (y * (1.0 + self.offset)).to(x.dtype)"
CALL = "        output = self.decoder(input_ids=input_ids, **kwargs)\n"
TABLE = "        stream = self.table(input_ids) if inputs_embeds is None else inputs_embeds\n"

EXPAND = "        opened = self.w1(stream)\n"
LATE = "            stream = stream * 1.5\n"

REFUSED: dict[str, tuple[str, Reason, list[tuple[str, str]]]] = {
    "a mask of ones": (
        "mask of ones",
        Reason.VALUE_VARIES,
        [(LOOP, f"        if attention_mask is not None:\n            stream = stream * 1.2\n{LOOP}")],
    ),
    "whether there is a cache": (
        "keep a cache",
        Reason.VALUE_VARIES,
        [(FIRST, f"        if memory is None:\n            stream = stream * 1.5\n{FIRST}")],
    ),
    "single tokens in a module that would be exchanged": (
        "on its first token alone",
        Reason.VALUE_VARIES,
        [(NORM, f"        y = y * (1.5 if x.shape[1] == 1 else 1.0)\n{NORM}")],
    ),
    "a number that the length of the row sets": (
        "computes with other numbers",
        Reason.VALUE_VARIES,
        [(LAST, f"        stream = stream * (1 + 0.5 * (stream.shape[1] > 50))\n{LAST}")],
    ),
    "a number that only very long rows set": (
        "computes with other numbers",
        Reason.VALUE_VARIES,
        [(LAST, f"        stream = stream * (1 + 0.5 * (stream.shape[1] > 5000))\n{LAST}")],
    ),
    "the place of the row's last token": (
        "its first tokens other answers",
        Reason.VALUE_VARIES,
        [(LOOP, f"        stream = stream * (1 + (position_ids[:, -1:, None] > 70).to(stream.dtype))\n{LOOP}")],
    ),
    "the place of a row among those of the wrapper": (
        "row by row",
        Reason.WRAPPER_NOT_ROWWISE,
        [
            (
                "* self.config.logit_scale",
                "* self.config.logit_scale * (1 + (torch.arange(logits_to_keep or output[0].shape[1]) >= 64)[:, None])",
            )
        ],
    ),
    "how torch keeps its books": (
        "in inference mode",
        Reason.VALUE_VARIES,
        [(LAST, f"        if torch.is_inference_mode_enabled():\n{LATE}{LAST}")],
    ),
    "whether it is compiled": (
        "when it is compiled",
        Reason.VALUE_VARIES,
        [(LAST, f"        if torch.compiler.is_compiling():\n{LATE}{LAST}")],
    ),
    "whether somebody else compiles it": (
        "when it is compiled",
        Reason.VALUE_VARIES,
        [(LAST, f"        if torch._dynamo.is_compiling():\n{LATE}{LAST}")],
    ),
    "a count that acts late": (
        "`decoder.blocks.0.calls`",
        Reason.VALUE_VARIES,
        [(LAST, f"        self.calls = getattr(self, 'calls', 0) + 1\n        if self.calls > 99:\n{LATE}{LAST}")],
    ),
    "what the wrapper leaves in the base model": (
        "off by",
        Reason.NUMBERS_DIFFER,
        [
            (CALL, f"        self.decoder.boost = 2.0\n{CALL}"),
            (LOOP, f"        stream = stream * getattr(self, 'boost', 1.0)\n{LOOP}"),
        ],
    ),
    "a token that no prompt of the proof has": (
        "gives a token what was made of other tokens' ids",
        Reason.NUMBERS_DIFFER,
        [(LOOP, f"        stream = stream * (1 + (input_ids > 90).any().to(stream.dtype))\n{LOOP}")],
    ),
    "a value that random weights never reach": (
        "`amax` takes all tokens of a row together",
        Reason.VALUE_VARIES,
        [(LAST, f"        stream = torch.where(stream.abs().amax((1, 2), True) > 1e9, 0.0, stream)\n{LAST}")],
    ),
    "the token before": (
        "`roll`",
        Reason.NUMBERS_DIFFER,
        [(LAST, f"        stream = stream + stream.roll(1, 1)\n{LAST}")],
    ),
    "what is raised in float64 alone": (
        "ValueError: doubled",
        Reason.CANNOT_RUN,
        [(LAST, f"        if stream.dtype == torch.float64:\n            raise ValueError('doubled')\n{LAST}")],
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    told, reason, changes = REFUSED[what]
    with pytest.raises(RefusedError) as no:
        decide(mutant(tmp_path, *changes))
    assert told in str(no.value)
    assert reason in {one.reason for one in no.value.refusals}


LINES = {
    "the token before": REFUSED["the token before"][2][0][1],
    "what is raised in float64 alone": REFUSED["what is raised in float64 alone"][2][0][1].split("\n", 1)[1],
    "two dtypes": f"        stream = stream @ torch.eye(stream.shape[-1], dtype=torch.bfloat16)\n{LAST}",
}


@pytest.mark.parametrize("what", LINES)
def test_refused_at_the_line(what: str, tmp_path: Path) -> None:
    changes = REFUSED[what][2] if what in REFUSED else [(LAST, LINES[what])]
    with pytest.raises(HfspeedError) as no:
        decide(mutant(tmp_path, *changes))
    error = no.value
    assert isinstance(error, RefusedError | SubjectError)
    place = error.place if isinstance(error, SubjectError) else error.refusals[0].place
    assert place is not None
    line = LINES[what].split("\n")[0].strip()
    assert Path(place.file).read_text("utf-8").split("\n")[place.line - 1].strip() == line


def test_a_cache_that_keeps_too_little_is_told(tmp_path: Path) -> None:
    """A running sum that no cache keeps: generation goes wrong, training does not, and that is served."""
    plan = decide(mutant(tmp_path, (EXPAND, "        stream = stream.cumsum(1)\n" + EXPAND)))
    assert any(isinstance(op, History) for op in plan.ops)
    assert [one.found for one in plan.refusals if one.wanted == "cache"]


def test_ids_that_are_reckoned_with(tmp_path: Path) -> None:
    """The small model keeps as many tokens as the code counts on."""
    plan = decide(mutant(tmp_path, (TABLE, TABLE.replace("input_ids)", "(input_ids + 7) % 512)")), vocab_size=512))
    assert plan.proofs


def test_a_branch_on_meta_is_the_one_of_real_tensors(tmp_path: Path) -> None:
    """What is recorded on meta lacks the operation; what runs has it, because the branch stays in the code."""
    (tmp_path / "one").mkdir()
    branch = f"        stream = stream if stream.is_meta else 0.7 * stream\n{LAST}"
    plan = decide(mutant(tmp_path / "one", (LAST, branch)))
    assert plan.proofs
    (tmp_path / "other").mkdir()
    changed = NORM.replace("y *", "y * (1.0 if x.is_meta else 1.3) *", 1)
    plan = decide(mutant(tmp_path / "other", (NORM, changed)))
    assert not any(isinstance(op, Norm) for op in plan.ops)


def test_rounding_on_the_way_is_not_fused_away(tmp_path: Path) -> None:
    """Casts to float32 are widened in proofs, narrower ones are not: what rounds runs as written."""
    gated = "        gated = passed * opened\n"
    changed = gated + "        gated = gated.to(torch.bfloat16).to(stream.dtype)\n"
    plan = decide(
        mutant(tmp_path, (NORM, NORM.replace(".to(x.dtype)", ".to(torch.bfloat16).to(x.dtype)")), (gated, changed))
    )
    assert not any(isinstance(op, Norm) for op in plan.ops)


def test_a_projection_that_others_read_stays(tmp_path: Path) -> None:
    changed = FIRST.replace("stream)", "stream).to(self.expand.w1.weight.dtype)", 1)
    plan = decide(mutant(tmp_path, (FIRST, changed)))
    assert not any(isinstance(op, Stacked) and "w1" in op.parts for op in plan.ops)
    assert any("`w1` is read by other code" in one.found for one in plan.refusals)


@pytest.mark.parametrize("part", ["w1", "w2"])
def test_a_linear_whose_size_others_ask_for_stays(part: str, tmp_path: Path) -> None:
    """A kernel keeps weights in a layout of its own: what it leaves in their place has another size."""
    gated = "        gated = passed * opened\n"
    plan = decide(mutant(tmp_path, (gated, f"{gated}        gated = gated * (self.{part}.weight.shape[0] / 48)\n")))
    assert f"decoder.blocks.1.expand.{part}" in {op.path for op in plan.ops if isinstance(op, Keep)}
    told = next(one for one in plan.refusals if "asks how large" in one.found and one.module.endswith(part))
    assert told.place is not None
    assert "weight.shape" in Path(told.place.file).read_text("utf-8").split("\n")[told.place.line - 1]


def test_a_table_whose_size_others_ask_for_stays(tmp_path: Path) -> None:
    plan = decide(mutant(tmp_path, (LOOP, f"        stream = stream * (self.table.weight.shape[0] / 96)\n{LOOP}")))
    assert [op for op in plan.ops if op.path == "decoder.table"] == [Keep("decoder.table")]


@pytest.mark.parametrize(("read", "stays"), [("self.table", "decoder.table"), ("self.head", "head")])
def test_a_table_whose_values_others_read_stays(read: str, stays: str, tmp_path: Path) -> None:
    """A vocabulary is filled up to a round number of rows, which would count in a mean."""
    change = (LOOP, f"        stream = stream - self.table.weight.mean()\n{LOOP}")
    if stays == "head":
        scale = "* self.config.logit_scale"
        change = (scale, f"{scale} / self.head.weight.norm(dim=-1).mean()")
    plan = decide(mutant(tmp_path, change))
    assert [op for op in plan.ops if op.path == stays] == [Keep(stays)]


def test_rotations_keep_their_imaginary_part() -> None:
    module = torch.nn.Module()
    module.register_buffer("turns", torch.polar(torch.ones(3), torch.arange(3.0)))
    module.register_buffer("counts", torch.arange(3))
    in_dtype(module, torch.float64)
    assert module.turns.dtype == torch.complex128
    assert module.turns.imag.abs().max() > 0.5
    assert module.counts.dtype == torch.int64
