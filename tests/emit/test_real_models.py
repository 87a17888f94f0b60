"""Real modeling code, with a small edit, emitted and imported, computes the author's numbers."""

from __future__ import annotations

import ast
import copy
import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from transformers.models.cohere import modeling_cohere
from transformers.models.gemma2 import modeling_gemma2
from transformers.models.gpt_neox import modeling_gpt_neox
from transformers.models.llama import modeling_llama

from hfspeed.emit import emitted
from hfspeed.plan import Forward, Plan, Wrapper
from hfspeed.source import Edits, Recovered, layer_loop, recover

SIZES = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 64, "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip


def first_call(recovered: Recovered) -> ast.Call:
    """The first call on a child of the module."""
    calls = [
        n
        for n in ast.walk(recovered.tree)
        if isinstance(n, ast.Call) and recovered.segment(n.func).startswith("self.") and n.args
    ]
    return min(calls, key=lambda call: (call.lineno, call.col_offset))


def edited(cls: type) -> Forward:
    """The author's class with its first call taken out into a statement of its own."""
    recovered = recover(cls)
    call = first_call(recovered)
    edits = Edits(recovered)
    edits.insert_before(recovered.statement_of(call), f"taken = {recovered.segment(call)}")
    edits.replace(call, "taken")
    return Forward(cls.__name__, cls.__module__, cls.__name__, edits.apply(), ("a call -> taken",), (), ())


def decoder(cls: type) -> Forward:
    """A decoder that can begin and end in the middle."""
    recovered = recover(cls)
    loop = layer_loop(recovered, "layers")
    (carried,) = loop.carried
    edits = Edits(recovered)
    edits.insert_parameter("intermediate", "torch.Tensor | None", "None")
    edits.insert_before(loop.node, f"if intermediate is not None:\n    {carried} = intermediate")
    edits.insert_after(loop.node, f"if self.hands_on:\n    return {carried}")
    return Forward(cls.__name__, cls.__module__, cls.__name__, edits.apply(), ("stages",), (), ())


def emit(folder: Path, architecture: str, *forwards: Forward) -> Any:
    wrapper = Wrapper("model", ("input_ids",), "lm_head")
    return emitted(Plan(architecture, "m", 32, (), (), (), forwards, wrapper, None, False), folder)


CASES = [
    (modeling_llama.LlamaForCausalLM, ["LlamaAttention", "LlamaMLP", "LlamaDecoderLayer"], "LlamaModel"),
    (modeling_gemma2.Gemma2ForCausalLM, ["Gemma2Attention", "Gemma2MLP", "Gemma2RMSNorm"], "Gemma2Model"),
    (modeling_gpt_neox.GPTNeoXForCausalLM, ["GPTNeoXAttention", "GPTNeoXMLP"], "GPTNeoXModel"),
    (modeling_cohere.CohereForCausalLM, ["CohereAttention", "CohereMLP", "CohereDecoderLayer"], "CohereModel"),
]


@pytest.mark.parametrize(("model_class", "names", "base"), CASES, ids=lambda value: getattr(value, "__name__", None))
def test_the_numbers_are_the_author_s(tmp_path: Path, model_class: Any, names: list[str], base: str) -> None:
    torch.manual_seed(0)
    author = model_class(model_class.config_class(**SIZES)).eval()
    module = inspect.getmodule(model_class)
    forwards = [edited(getattr(module, name)) for name in names] + [decoder(getattr(module, base))]
    classes = emit(tmp_path, model_class.__name__, *forwards)

    ours = copy.deepcopy(author)
    for child in ours.modules():
        if type(child).__module__ == module.__name__ and hasattr(classes, type(child).__name__):
            child.__class__ = getattr(classes, type(child).__name__)
    swapped = {type(child).__name__ for child in ours.modules() if type(child).__module__ == classes.__name__}
    assert swapped == {*names, base}
    body = ours.get_decoder() if hasattr(ours, "get_decoder") else ours.base_model
    body.hands_on = False

    tokens = torch.arange(1, 12)[None]
    with torch.no_grad():
        assert torch.equal(ours(tokens).logits, author(tokens).logits)
        body.hands_on = True
        halfway = body(tokens)
        assert isinstance(halfway, torch.Tensor)
        body.hands_on = False
        layers, body.layers = body.layers, nn.ModuleList()
        body.config.num_hidden_layers = 0
        rest = ours(tokens, intermediate=halfway).logits
        body.layers, body.config.num_hidden_layers = layers, len(layers)
        assert torch.equal(rest, author(tokens).logits)


def test_isinstance_and_types_hold(tmp_path: Path) -> None:
    classes = emit(tmp_path, "LlamaForCausalLM", edited(modeling_llama.LlamaAttention))
    assert issubclass(classes.LlamaAttention, modeling_llama.LlamaAttention)
    assert (
        inspect.signature(classes.LlamaAttention.forward).parameters.keys()
        == inspect.signature(modeling_llama.LlamaAttention.forward).parameters.keys()
    )


def test_decorators_that_only_document_are_gone() -> None:
    text = Edits(recover(transformers.LlamaForCausalLM)).apply()
    assert text.startswith("@can_return_tuple\ndef forward(")
