"""What the ForCausalLM class does around its base model: which parts it has, and what follows the head."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx, nn
from transformers.utils import ModelOutput

from hfspeed.errors import SubjectError
from hfspeed.graph.nodes import function_name
from hfspeed.graph.positions import forward_code
from hfspeed.graph.record import Call, Recording
from hfspeed.graph.tensors import tensors
from hfspeed.pattern.first_rows import NAME
from hfspeed.plan import Wrapper
from hfspeed.refusal import Place

_PASSED = ("input_ids", "position_ids", "inputs_embeds")


def wrapper(
    model: Any,
    recording: Recording,
    *,
    interface: bool = True,
    counted: bool = False,
    first_position: int = 0,
    limit: int = 0,
) -> Wrapper:
    """Read the wrapper's parts off the author's module and its recorded call.

    Args:
        model: the author's ``ForCausalLM``.
        recording: a run of it.
        interface: its attention calls the attention interface.
        counted: positions that it counted itself become a parameter.
        first_position: the number that it gives the first token.
        limit: the longest sequence that is computed as short ones are, if not any is.

    Raises:
        SubjectError: it calls no base model as a whole, or has no output projection.
    """
    base = base_of(model, recording)
    parameters = inspect.signature(model.get_submodule(base).forward).parameters
    head = name_of(model, model.get_output_embeddings())
    keywords = tuple(name for name in _PASSED if name in parameters)
    keywords += (NAME,) if counted else ()
    call = recording.calls[base]
    bare = _is_bare(model, call, model.get_submodule(head))
    shape, given = (next(tensors(value)).shape for value in (call.output, (call.args, call.kwargs)))
    turned = len(shape) > 2 and len(given) > 1 and shape[:2] == (given[1], given[0]) and given[0] != given[1]
    after = _after(recording.calls[""].graph, head)
    parts = len(call.output) if type(call.output) is tuple else 0  # which the wrapper may unpack
    return Wrapper(base, keywords, head, after, interface, first_position, bare, limit, turned, parts)


def _is_bare(model: Any, call: Call, head: nn.Module) -> bool:
    """Whether a base model gave the hidden states themselves; what holds none cannot be served."""
    output = call.output
    bare = isinstance(output, torch.Tensor)
    first = output if bare else None
    if isinstance(output, (tuple, ModelOutput)) and len(output):
        first = output[0]
    if isinstance(first, torch.Tensor) and not _is_scores(first, head):
        return bare
    place = _forward_of(call.module)
    raise SubjectError(
        f"{place}: `{call.path}`, which {type(model).__name__} calls, gives a {type(output).__name__} "
        "without hidden states; let it return them, as a tensor, as the first of a tuple or as `last_hidden_state`, "
        "and compute logits in the class that calls it",
        place,
    )


def _is_scores(found: torch.Tensor, head: nn.Module) -> bool:
    """Whether it is as wide as what the output projection gives, and not as what it takes."""
    weight = getattr(head, "weight", None)
    if not isinstance(weight, torch.Tensor) or weight.ndim != 2 or weight.shape[0] == weight.shape[1]:
        return False
    return bool(found.shape[-1] == weight.shape[0])


def base_of(model: Any, recording: Recording) -> str:
    """The module that turns tokens into hidden states: the one call of the wrapper with the token table in it.

    Usually that is the attribute named by ``base_model_prefix``; but some wrappers call a decoder that lies deeper.

    Raises:
        SubjectError: there is no such call.
    """
    prefix = model.base_model_prefix
    called = [str(node.target) for node in recording.calls[""].graph.nodes if node.op == "call_module"]
    if called.count(prefix) == 1:
        return str(prefix)
    table = model.get_input_embeddings()
    whole = [path for path in dict.fromkeys(called) if any(m is table for m in _below(model, path))]
    if len(whole) == 1 and called.count(whole[0]) == 1:
        return whole[0]
    place = _forward_of(model)
    raise SubjectError(
        f"{place}: {type(model).__name__} calls no one module that makes hidden states of "
        f"tokens (`{prefix}`, its base_model_prefix, is not called as a whole); keep the token table and the decoder "
        "in one child and call it once: hfspeed replaces that call when it computes logits",
        place,
    )


def _forward_of(module: nn.Module) -> Place:
    """Where the forward of a module begins, or its file."""
    code = forward_code(type(module))  # type: ignore[arg-type]
    return Place(code.co_filename, code.co_firstlineno) if code else Place(inspect.getfile(type(module)), 1)


def _below(model: nn.Module, path: str) -> Iterator[nn.Module]:
    """The modules in the child at ``path``; a child that is the token table itself has none."""
    inner = model.get_submodule(path)
    return (module for module in inner.modules() if module is not inner)


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
