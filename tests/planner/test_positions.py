"""Decoders that take no positions, begin them late, lie deeper than the wrapper's own attribute, or share modules."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from hfspeed.plan import Attention, Plan, Positions, Row
from hfspeed.planner.beginning import beginning
from hfspeed.planner.decide import decide
from hfspeed.planner.load import Subject

sys.path.insert(0, str(Path(__file__).parent))
from mutants import mutant

ENCODER: dict[str, Any] = {"is_decoder": True, "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
OPT: dict[str, Any] = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "word_embed_proj_dim": 64}
BART: dict[str, Any] = {"d_model": 64, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 96}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def plan(architecture: str, **values: Any) -> Plan:
    cls = getattr(transformers, architecture)
    return decide(Subject(architecture, None, cls.config_class(**values), cls, None))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("architecture", "rewritten"),
    [("BartForCausalLM", {"BartDecoder"}), ("MvpForCausalLM", {"MvpDecoder", "MvpLearnedPositionalEmbedding"})],
)
def test_positions_that_a_decoder_counts_are_handed_over(architecture: str, rewritten: set[str]) -> None:
    found = plan(architecture, d_model=64, decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=96)
    assert found.wrapper.base == "model.decoder"
    assert found.wrapper.keywords == ("input_ids", "inputs_embeds", "token_positions")
    assert {forward.name for forward in found.forwards if "token_positions" in forward.text} == rewritten
    assert found.tensor


def test_positions_that_begin_late_begin_there() -> None:
    found = plan("RobertaForCausalLM", **ENCODER, pad_token_id=4)
    assert found.wrapper.first_position == 5
    # the layers' loop is inside of the base model, which reads what the loop's module returns
    assert found.tensor
    assert found.stages is not None
    assert found.stages.decoder == "roberta.encoder"


@pytest.mark.parametrize(
    ("architecture", "sizes", "room"),
    [
        ("GPT2LMHeadModel", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128}, 128),
        ("OPTForCausalLM", {"max_position_embeddings": 128, **OPT}, 128),
        ("RobertaForCausalLM", {**ENCODER, "max_position_embeddings": 130}, 128),
        ("BartForCausalLM", {**BART, "max_position_embeddings": 128}, 128),
        ("LlamaForCausalLM", {"hidden_size": 64, "num_hidden_layers": 2, "max_position_embeddings": 96}, 0),
    ],
)
def test_rows_for_positions_are_counted(architecture: str, sizes: dict[str, Any], room: int) -> None:
    cls = getattr(transformers, architecture)
    subject = Subject(architecture, None, cls.config_class(**sizes), cls, None)  # type: ignore[arg-type]
    full, _, _ = beginning(subject)
    assert full.room == room


TABLE = "        self.table = nn.Embedding(config.vocab_size, config.width)\n"
LOOP = "        for block in self.blocks:\n            stream = block("
WAVES = """
class Waves(nn.Module):
    def forward(self, positions):
        return torch.sin(positions[..., None].double() / torch.arange(1, 33, device=positions.device))


class Block(nn.Module):
"""


@pytest.mark.parametrize(("index", "room"), [("position_ids", 120), ("position_ids.clamp(max=119)", 0)])
def test_a_table_of_positions_shorter_than_the_model(tmp_path: Path, index: str, room: int) -> None:
    more = TABLE + "        self.places = nn.Embedding(120, config.width)\n"
    found = decide(mutant(tmp_path, (TABLE, more), (LOOP, f"        stream = stream + self.places({index})\n{LOOP}")))
    assert found.wrapper.room == room


@pytest.mark.parametrize(("given", "fused"), [("position_ids", True), ("90 - position_ids", False)])
def test_rows_are_made_for_positions_of_tokens(tmp_path: Path, given: str, fused: bool) -> None:
    """A base model may hand on others, for which a table of as many rows as a sequence has none."""
    changes = [
        ("class Block(nn.Module):\n", WAVES.lstrip("\n")),
        (TABLE, TABLE + "        self.waves = Waves()\n"),
        (LOOP, f"        stream = stream + self.waves({given}).to(stream.dtype)\n{LOOP}"),
    ]
    found = decide(mutant(tmp_path, *changes))
    assert any(isinstance(op, Positions) for op in found.ops) is fused


def test_a_module_in_two_layers_is_one(tmp_path: Path) -> None:
    loop = "        self.after = Scale(config.width, config.epsilon)\n"
    found = decide(mutant(tmp_path, (loop, loop + "        self.blocks[1].expand = self.blocks[0].expand\n")))
    assert found.tensor
    assert not [op for op in found.ops if op.path.startswith("decoder.blocks.1.expand")]
    assert {"decoder.blocks.1.expand.w1.weight"} <= {tie.source for tie in found.ties}
    # on a stage without the first of them nobody would fill it
    assert found.stages is None


def test_shapes_that_name_all_heads_fit_a_share() -> None:
    """It gives the result the width of its input, which no rank's share has."""
    found = plan("TrOCRForCausalLM", d_model=64, decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=96)
    assert all(op.split for op in found.ops if isinstance(op, Attention))
    assert ".reshape(bsz, tgt_len, -1)" in next(f.text for f in found.forwards if f.base == "TrOCRAttention")


def test_attention_that_cannot_be_split_is_whole() -> None:
    """The halves of its values are paired over all heads; the rest of the layer is split all the same."""
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    found = plan("DiffLlamaForCausalLM", num_key_value_heads=2, **sizes)
    assert [(op.split, op.calls) for op in found.ops if isinstance(op, Attention)] == [(False, 2)] * 2
    assert found.tensor
    assert any(isinstance(op, Row) for op in found.ops)
