"""Logits come from the author's own wrapper: scales, caps and slices are those it writes."""

from __future__ import annotations

import copy
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from hfspeed.plan import Plan, Wrapper
from hfspeed.planner.build import build, randomise

MODELS = {
    "GraniteForCausalLM": {"logits_scaling": 3.0},
    "Gemma2ForCausalLM": {"final_logit_softcapping": 2.0, "head_dim": 4},
    "CohereForCausalLM": {"logit_scale": 0.3},
}


@pytest.mark.parametrize("name", MODELS)
def test_as_the_author_writes_them(serving: ModuleType, name: str) -> None:
    import transformers

    from hfspeed.vllm.logits import Logits

    model_class: Any = getattr(transformers, name)
    sizes = {"hidden_size": 8, "intermediate_size": 12, "num_attention_heads": 2, "num_key_value_heads": 2}
    config = model_class.config_class(num_hidden_layers=1, vocab_size=16, pad_token_id=0, **sizes, **MODELS[name])
    author = build(model_class, config, device="cpu")
    randomise(author)
    ids = torch.tensor([[1, 5, 9, 2]])
    with torch.no_grad():
        wanted = author(input_ids=ids, use_cache=False).logits[0]
        hidden = author.model(input_ids=ids, use_cache=False).last_hidden_state[0]
    before = copy.copy(author._modules)
    plan = Plan(name, "m", 8, (), (), (), (), Wrapper("model", (), "lm_head"), None, False)
    head = author.lm_head
    logits = Logits(author, plan, lambda value: head(value))
    with torch.no_grad():
        torch.testing.assert_close(logits(hidden), wanted)
        torch.testing.assert_close(logits(hidden[2:3]), wanted[2:3])
    assert author._modules == before


def test_several_logits_of_a_token(serving: ModuleType) -> None:
    """A mixture of softmaxes asks the head more than once for a token; vLLM cuts what its head was filled up with."""
    from hfspeed.vllm.models.causal import TransformersForCausalLM

    head, hidden = torch.nn.Linear(8, 16), torch.randn(1, 5, 3, 8)

    def processor(head: Any, rows: torch.Tensor, bias: object) -> torch.Tensor:
        assert rows.ndim == 2
        return torch.nn.functional.pad(head(rows), (0, 48))[..., :16]

    model: Any = SimpleNamespace(_head=lambda: head, logits_processor=processor)
    for given in (hidden, hidden[:, :, 0], hidden[:, :0, 0]):
        torch.testing.assert_close(TransformersForCausalLM._project(model, given), head(given))


def test_tokens_without_logits_are_never_written(serving: ModuleType) -> None:
    """A vocabulary that is larger than what the projection gives."""
    from hfspeed.vllm.models.causal import TransformersForCausalLM

    model: Any = SimpleNamespace(logits=lambda hidden: hidden * 2, vocabulary=6)
    found = TransformersForCausalLM.compute_logits(model, torch.ones(3, 4))
    assert found is not None
    assert found.tolist() == [[2.0] * 4 + [-float("inf")] * 2] * 3
    model.vocabulary = 3
    assert TransformersForCausalLM.compute_logits(model, torch.ones(3, 4)).shape == (3, 4)  # type: ignore[union-attr]
