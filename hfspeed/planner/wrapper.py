"""What the ForCausalLM class does around its base model: which parts it has, and what follows the head."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import fx, nn
from transformers.utils import ModelOutput

from hfspeed.axes.pipeline import layer_list
from hfspeed.errors import SubjectError
from hfspeed.graph.nodes import function_name
from hfspeed.graph.positions import forward_code
from hfspeed.graph.record import Call, Recording
from hfspeed.graph.tensors import tensors
from hfspeed.pattern.first_rows import NAME
from hfspeed.plan import Wrapper
from hfspeed.plan.keywords import FALSE, HARMLESS
from hfspeed.planner.ending import Found, ending
from hfspeed.planner.ends import projection_of, table_of
from hfspeed.reference.asking import ids_name
from hfspeed.refusal import Place, Refused


def wrapper(
    model: Any,
    recording: Recording,
    *,
    interface: bool = True,
    counted: bool = False,
    first_position: int = 0,
    limit: int = 0,
    room: int = 0,
) -> Wrapper:
    """Read the wrapper's parts off the author's module and its recorded call.

    Args:
        model: the author's ``ForCausalLM``.
        recording: a run of it.
        interface: its attention calls the attention interface.
        counted: positions that it counted itself become a parameter.
        first_position: the number that it gives the first token.
        limit: the longest sequence that is computed as short ones are, if not any is.
        room: the longest sequence that its tables have rows for, if not any.

    Raises:
        SubjectError: it calls no base model as a whole, or has no output projection.
    """
    base, end = whereabouts(model, recording)
    head, call = name_of(model, projection_of(model)), recording.calls[base]
    hidden = hidden_of(model, recording)
    shape, given = hidden.shape, next(tensors((call.args, call.kwargs))).shape
    turned = len(shape) > 2 and len(given) > 1 and shape[:2] == (given[1], given[0]) and given[0] != given[1]
    parts = len(call.output) if type(call.output) is tuple and end is None else 0  # which the wrapper may unpack
    found = Wrapper(
        base,
        _keywords(model, recording, base) + ((NAME,) if counted else ()),
        head,
        _after(recording.calls[base if end is not None else ""].graph, head),
        interface,
        first_position,
        isinstance(call.output, torch.Tensor) and end is None,
        limit,
        turned,
        parts,
    )
    constants = tuple(_constants(call)) if base else ()
    return replace(
        found, ids=ids_name(call.module), constants=constants, room=room, ending=end.ending if end is not None else None
    )


def hidden_of(model: Any, recording: Recording) -> torch.Tensor:
    """The hidden states of a recorded run."""
    base, end = whereabouts(model, recording)
    found = next(tensors(recording.calls[base].output)) if end is None else end.hidden.meta["value"]
    assert isinstance(found, torch.Tensor)
    return found


def _constants(call: Call) -> Iterator[tuple[str, str]]:
    """Plain values that the wrapper hands to its base model, other than those that it would take by itself."""
    taken: Any = inspect.signature(call.module.forward)
    try:
        given = taken.bind(*call.args, **call.kwargs).arguments
    except TypeError:
        return
    for name, value in given.items():
        entry = taken.parameters[name]
        needed = entry.default is inspect.Parameter.empty
        plain = type(value) in {bool, int, float, str} or (value is None and needed)
        if plain and name not in HARMLESS | FALSE and (needed or value != entry.default):
            yield name, repr(value)


def _keywords(model: Any, recording: Recording, base: str) -> tuple[str, ...]:
    """The names that the base model takes from us."""
    parameters = inspect.signature(model.get_submodule(base).forward).parameters
    passed = (ids_name(model.get_submodule(base)), "position_ids", "inputs_embeds")
    told = takes_positions(model, recording, base)
    return tuple(name for name in passed if name in parameters and (told or name != "position_ids"))


def takes_positions(model: Any, recording: Recording, base: str) -> bool:
    """Whether a base model is told positions, and does anything with them where they are given."""
    if "position_ids" not in inspect.signature(model.get_submodule(base).forward).parameters:
        return False
    given = [n for n in recording.calls[base].graph.nodes if n.meta.get("argument") == "position_ids"]
    return not given or any(node.users for node in given)


def whereabouts(model: Any, recording: Recording) -> tuple[str, Found | None]:
    """The path of the base model; and where it ends, if it goes on to make logits.

    Raises:
        SubjectError: there is none, or what it returns is neither hidden states nor logits that are understood.
    """
    try:
        base = _called_whole(model, recording)
        if not _looped_outside(recording, base):
            _demand_hidden(model, recording.calls[base])
            return base, None
    except SubjectError as no:
        try:
            found = ending(model, recording)
        except SubjectError as why:
            raise no from why
    else:
        found = ending(model, recording)
    return found.base, found


def _looped_outside(recording: Recording, base: str) -> bool:
    """Whether the decoder's layers lie beside what makes hidden states of tokens, which is then a larger table."""
    try:
        _, layers = layer_list(recording)
    except Refused:
        return False
    return not layers.startswith(f"{base}.")


def _demand_hidden(model: Any, call: Call) -> None:
    """A base model gives hidden states, alone or as the first of something."""
    output = call.output
    first = output if isinstance(output, torch.Tensor) else None
    if isinstance(output, (tuple, ModelOutput)) and len(output):
        first = output[0]
    if isinstance(first, torch.Tensor) and not _is_scores(first, projection_of(model)):
        return
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
    """The module that turns tokens into hidden states, wherever it goes on to; see `whereabouts`."""
    return whereabouts(model, recording)[0]


def _called_whole(model: Any, recording: Recording) -> str:
    """The module that turns tokens into hidden states: the one call of the wrapper with the token table in it.

    Usually that is the attribute named by ``base_model_prefix``; but some wrappers call a decoder that lies deeper.

    Raises:
        SubjectError: there is no such call.
    """
    prefix = model.base_model_prefix
    called = [str(node.target) for node in recording.calls[""].graph.nodes if node.op == "call_module"]
    if called.count(prefix) == 1:
        return str(prefix)
    table = table_of(model)
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
