"""What only masks and far positions say is served as well, or refused: no keyword and no short prompt shows it."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from transformers import Qwen2MoeConfig, Qwen2MoeForCausalLM

from hfspeed.errors import RefusedError
from hfspeed.plan import Attention, Plan
from hfspeed.planner.decide import decide
from hfspeed.planner.load import Subject
from hfspeed.refusal import Reason

sys.path.insert(0, str(Path(__file__).parent))
from mutants import mutant

MADE = "        mask = create_causal_mask(\n"
IMPORT = "from transformers.masking_utils import create_causal_mask\n"
HAND = "mask=mask, memory=past_key_values"
LOOP = "        for block in self.blocks:\n"
CALL = "        run = ALL_ATTENTION_FUNCTIONS"
LAST = "        return self.expand(self.between(stream)) + stream"
OTHER = """        given = dict(config=self.config, inputs_embeds=stream, attention_mask=attention_mask)
        other = other_mask(**given, past_key_values=past_key_values, position_ids=position_ids)
"""
LATE = "            position_ids=position_ids,\n        )\n"


def attention(plan: Plan) -> list[Attention]:
    return [op for op in plan.ops if isinstance(op, Attention)]


def masks(maker: str, **more: str) -> list[tuple[str, str]]:
    """Masks of another maker, for all layers."""
    extra = "".join(f"            {name}={value},\n" for name, value in more.items())
    return [
        (IMPORT, f"{IMPORT}from transformers.masking_utils import {maker} as other_mask\n"),
        (MADE, f"        mask = other_mask(\n{extra}"),
    ]


def by_layer(maker: str, rule: str) -> list[tuple[str, str]]:
    """Masks of another maker, for layers by a rule."""
    return [
        (IMPORT, f"{IMPORT}from transformers.masking_utils import {maker} as other_mask\n"),
        (LATE, LATE + OTHER),
        (LOOP, "        for number, block in enumerate(self.blocks):\n"),
        (HAND, f"mask=other if {rule} else mask, memory=past_key_values"),
    ]


@pytest.mark.parametrize("size", [6, 4096])
@pytest.mark.parametrize(
    ("maker", "name", "field"),
    [
        ("create_sliding_window_causal_mask", "sliding_window", "window"),
        ("create_chunked_causal_mask", "attention_chunk_size", "chunk"),
    ],
)
def test_read_off_the_mask(tmp_path: Path, size: int, maker: str, name: str, field: str) -> None:
    plan = decide(mutant(tmp_path, *masks(maker), **{name: size}))
    assert [(getattr(op, field), op.by_mask) for op in attention(plan)] == [(size, True)] * 2


@pytest.mark.parametrize("rule", ["number % 2", "number >= 4", "number == 5"])
def test_layers_that_differ_in_nothing_else(tmp_path: Path, rule: str) -> None:
    changes = by_layer("create_sliding_window_causal_mask", rule)
    plan = decide(mutant(tmp_path, *changes, depth=6, sliding_window=4096))
    expected = [4096 if eval(rule, {"number": number}) else None for number in range(6)]
    assert [op.window for op in sorted(attention(plan), key=lambda op: op.path)] == expected


def test_a_mask_of_another_kind(tmp_path: Path) -> None:
    changes = masks("create_causal_mask", and_mask_function="lambda b, h, q, k: (q < 5000) | (k > 3)")
    with pytest.raises(RefusedError) as told:
        decide(mutant(tmp_path, *changes))
    assert told.value.refusals[0].reason is Reason.MASK_NOT_CAUSAL
    assert "nor in chunks" in told.value.refusals[0].found


@pytest.mark.parametrize(("told", "served"), [("None", True), ("6", True), ("7", False)])
def test_a_mask_and_a_keyword(tmp_path: Path, told: str, served: bool) -> None:
    """A keyword of nothing leaves it to the mask; another window than the mask's is one too many."""
    given = ("scaling=size**-0.5, **kwargs", f"scaling=size**-0.5, sliding_window={told}, **kwargs")
    expected = nullcontext() if served else pytest.raises(RefusedError, match=r"mask-not-causal|answers otherwise")
    with expected:
        plan = decide(mutant(tmp_path, *masks("create_sliding_window_causal_mask"), given, sliding_window=6))
        assert {op.window for op in attention(plan)} == {6}


AGAIN = """        if stream.shape[1] > {rows}:
            mask = create_causal_mask(
                config=self.config,
                inputs_embeds=stream,
                attention_mask=attention_mask,
                past_key_values=past_key_values,
                position_ids=position_ids,
                and_mask_function=lambda b, h, q, k: q - k < {window},
            )
"""


@pytest.mark.parametrize("rows", [30, 700, 9000])
def test_long_rows_get_another_mask(tmp_path: Path, rows: int) -> None:
    """Which makes short rows and long ones beside each other impossible, unless no short row shows the difference."""
    change = (LATE, LATE + AGAIN.format(rows=rows, window=rows - 10))
    with pytest.raises(RefusedError) as told:
        decide(mutant(tmp_path, change, max_position_embeddings=20000))
    assert told.value.refusals[0].reason is Reason.MASK_NOT_CAUSAL
    assert told.value.refusals[0].place is not None


@pytest.mark.parametrize("rows", [30, 700])
def test_a_mask_that_short_rows_need_not_make(tmp_path: Path, rows: int) -> None:
    change = (LATE, LATE + AGAIN.format(rows=rows, window=rows))
    plan = decide(mutant(tmp_path, change, max_position_embeddings=20000))
    assert {op.window for op in attention(plan)} == {rows}


@pytest.mark.parametrize("stored", [True, False])
def test_a_window_in_a_buffer(tmp_path: Path, stored: bool) -> None:
    """A checkpoint may hold another one than the constructor makes."""
    made = "        self.post_init()\n\n    def get_input"
    buffer = f"        self.register_buffer('reach', torch.tensor(64), persistent={stored})\n"
    changes = masks("create_causal_mask", and_mask_function="lambda b, h, q, k: q - k < self.reach")
    expected = pytest.raises(RefusedError, match="mask-not-causal") if stored else nullcontext()
    with expected:
        plan = decide(mutant(tmp_path, (made, buffer + made), *changes))
        assert {op.window for op in attention(plan)} == {64}


PARTS = "(input_ids == 3).cumsum(-1)"


def test_a_mask_made_of_token_ids(tmp_path: Path) -> None:
    """Sequences packed behind separators; no prompt of a proof need have one in its midst."""
    rule = f"(lambda parts: lambda b, h, q, k: parts[b, q] == parts[b, k])({PARTS})"
    with pytest.raises(RefusedError) as told:
        decide(mutant(tmp_path, *masks("create_causal_mask", and_mask_function=rule)))
    assert told.value.refusals[0].reason is Reason.MASK_NOT_CAUSAL


def test_positions_that_stand_still_far_on(tmp_path: Path) -> None:
    """transformers takes positions that repeat for packed sequences, in the mask that it makes for itself."""
    clipped = "        position_ids = position_ids.clamp(max=300)\n"
    with pytest.raises(RefusedError):
        decide(mutant(tmp_path, (MADE, clipped + MADE)))


@pytest.mark.parametrize("each", [3, 4096])
def test_layers_that_count_by_themselves(tmp_path: Path, each: int) -> None:
    heat = f"        heat = 1 + torch.log1p(torch.floor(torch.arange(tokens) / {each}))\n"
    plan = decide(mutant(tmp_path, (CALL, f"{heat}        query = query * heat[None, None, :, None]\n{CALL}")))
    assert "token_positions" in plan.wrapper.keywords


FAR: dict[str, Any] = {
    "in a function": "torch.floor(torch.arange(tokens) / 4096)",
    "by adding up ones": "torch.floor(torch.ones(tokens).cumsum(0) / 4096)",
    "from a number on": "(torch.arange(tokens) > 9000).to(stream.dtype)",
}


@pytest.mark.parametrize("how", FAR)
def test_far_positions_that_cannot_be_handed_down(tmp_path: Path, how: str) -> None:
    made = f"def heat(tokens, stream):\n    places = 1 + {FAR[how]}\n    return places\n\n\nclass Block"
    changes = [
        ("class Block", made),
        (LAST, f"        stream = stream * heat(stream.shape[1], stream)[None, :, None]\n{LAST}"),
    ]
    with pytest.raises(RefusedError) as told:
        decide(mutant(tmp_path, *changes))
    no = told.value.refusals[0]
    assert no.reason is Reason.POSITIONS_NOT_READ
    assert no.place is not None
    assert "places = 1 +" in Path(no.place.file).read_text("utf-8").splitlines()[no.place.line - 1]


def test_a_window_that_a_server_took_away_is_none() -> None:
    """vLLM does so where a configuration has a window that is not in use; transformers then makes no such mask."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = Qwen2MoeConfig(
        **sizes, intermediate_size=96, moe_intermediate_size=32, shared_expert_intermediate_size=32, num_experts=4,
        num_experts_per_tok=2, vocab_size=128, use_sliding_window=False,
    )  # fmt: skip
    config.sliding_window = None
    plan = decide(Subject("taken away", None, config, Qwen2MoeForCausalLM, None))
    assert attention(plan)
    assert all(op.window is None and not op.by_mask for op in attention(plan))
