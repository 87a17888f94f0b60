"""What the ForCausalLM class does around its base model: which parts it has, and what follows the head."""

from __future__ import annotations

import inspect
from typing import Any

from torch import fx, nn

from hfspeed.errors import SubjectError
from hfspeed.graph.nodes import function_name
from hfspeed.graph.record import Recording
from hfspeed.plan import Wrapper

_PASSED = ("input_ids", "position_ids", "inputs_embeds")


def wrapper(model: Any, recording: Recording, *, interface: bool = True) -> Wrapper:
    """Read the wrapper's parts off the author's module and its recorded call.

    Args:
        model: the author's ``ForCausalLM``.
        recording: a run of it.
        interface: its attention calls the attention interface.

    Raises:
        SubjectError: it has no base model or no output projection of its own.
    """
    base = _base(model)
    inner = getattr(model, base, None)
    if not isinstance(inner, nn.Module) or inner is model:
        raise SubjectError(
            f"{inspect.getfile(type(model))}: {type(model).__name__} has no base model under "
            f"`{base}` (base_model_prefix); keep the decoder in an attribute of that name"
        )
    if base not in recording.calls:
        raise SubjectError(
            f"{inspect.getfile(type(model))}: {type(model).__name__} does not call its base model `{base}` "
            "as a whole; hfspeed replaces that call when it computes logits"
        )
    parameters = inspect.signature(inner.forward).parameters
    head = name_of(model, model.get_output_embeddings())
    keywords = tuple(name for name in _PASSED if name in parameters)
    return Wrapper(base, keywords, head, _after(recording.calls[""].graph, head), interface)


def _base(model: Any) -> str:
    """The attribute of the base model: as it is declared, else the child that has the token table."""
    declared: str = model.base_model_prefix
    if isinstance(getattr(model, declared, None), nn.Module):
        return declared
    table = model.get_input_embeddings()
    holders = [name for name, child in model.named_children() if any(module is table for module in child.modules())]
    return holders[0] if holders and getattr(model, holders[0]) is not table else declared


def name_of(model: nn.Module, part: nn.Module | None) -> str:
    """The dotted name of a submodule."""
    for name, module in model.named_modules():
        if module is part:
            return name
    raise SubjectError(f"{inspect.getfile(type(model))}: {type(model).__name__} has no output projection")


def _after(graph: fx.Graph, head: str) -> tuple[str, ...]:
    """The operations behind the head, in words."""
    words: list[str] = []
    behind: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "call_module" and node.target == head:
            behind.add(node)
        elif node.op != "output" and behind.intersection(node.all_input_nodes):
            behind.add(node)
            words.append(_word(node))
    return tuple(words)


def _word(node: fx.Node) -> str:
    name = function_name(node) or str(node.target).rpartition(".")[2]
    numbers = [f"{a:g}" for a in node.args if isinstance(a, (int, float))]
    return " ".join([name, *numbers])
