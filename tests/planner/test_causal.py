"""Attention that does not say it is causal: masks may make it so, and a refusal names the switch that would."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from hfspeed.errors import RefusedError
from hfspeed.plan import Attention, Plan
from hfspeed.planner.decide import decide
from hfspeed.planner.load import Subject
from hfspeed.refusal import Reason


def plan(architecture: str, **values: Any) -> Plan:
    torch.set_num_threads(1)
    cls = getattr(transformers, architecture)
    return decide(Subject(architecture, None, cls.config_class(**values), cls, None))  # type: ignore[arg-type]


def test_masks_make_it_causal() -> None:
    sizes = {"d_model": 64, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 96, "vocab_size": 128}
    found = plan("BigBirdPegasusForCausalLM", **sizes)
    assert all(op.split for op in found.ops if isinstance(op, Attention))


def test_the_switch_is_named() -> None:
    sizes = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 128}
    with pytest.raises(RefusedError) as no:
        plan("BertLMHeadModel", **sizes)
    assert no.value.refusals[0].reason is Reason.MASK_NOT_CAUSAL
    assert "`is_decoder: true` in config.json" in str(no.value)
