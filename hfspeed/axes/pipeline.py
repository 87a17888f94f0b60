"""Where the decoder may be cut into stages: the list of layers whose value goes from one to the next."""

from __future__ import annotations

import re

from torch import fx, nn

from hfspeed.graph.crossing import crowded, smuggled
from hfspeed.graph.record import Call, Recording
from hfspeed.hints.hint import Hint, read
from hfspeed.hints.truth import untrue
from hfspeed.pattern.edit import Change
from hfspeed.pattern.site import Site
from hfspeed.plan import Stages
from hfspeed.refusal import Reason, Refusal, Refused
from hfspeed.source.carried import Loop, layer_loop

_NOTE = "pipeline stages may be cut between the layers"


def layer_list(recording: Recording) -> tuple[str, str]:
    """Paths of the decoder and of its list of layers.

    Raises:
        Refused: no list, or several, whose members feed one another; or a hint that is not true.
    """
    model = recording.model
    found = [
        (outer, name)
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and any(True for _ in module.parameters())
        for outer in [_called(recording, name.rpartition(".")[0])]
        for seen in [recording.same(outer)]
        if seen in recording.calls and _chained(recording.calls[seen].graph, recording.same(name), len(module))
    ]
    found = [pair for pair in found if not any(pair[1].startswith(f"{outer}.") for _, outer in found)]
    for path, call in recording.calls.items():
        for hint in (h for h in read(call.cls) if h.kind == "decoder_layers"):
            return _hinted(hint, path, call, found)
    if len(found) == 1:
        return found[0]
    told = ", ".join(f"`{name}`" for _, name in found) or "no list of layers that feed one another"
    raise Refused(
        Refusal(
            "stages",
            Reason.NO_DECODER_LAYERS,
            f"found {told}",
            type(model).__name__,
            help='mark the decoder with `@decoder_layers("…")`',
        )
    )


def _called(recording: Recording, path: str) -> str:
    """The module at ``path``, or the one that it only holds things for, as a dictionary of modules does."""
    while path and isinstance(recording.model.get_submodule(path), (nn.ModuleDict, nn.ModuleList)):
        path = path.rpartition(".")[0]
    return path


def _hinted(hint: Hint, path: str, call: Call, found: list[tuple[str, str]]) -> tuple[str, str]:
    here = [pair for pair in found if pair[0] == path]
    name = hint.name("layers")
    wanted = [pair for pair in here if name is None or pair[1] == f"{path}.{name}"]
    if len(wanted) == 1:
        return wanted[0]
    shown = f"`{name}`" if name else "no child"
    raise Refused(untrue(hint, call.cls.__name__, f"{shown} is not a list of layers that feed one another"))


def _chained(graph: fx.Graph, name: str, count: int) -> bool:
    """Every member is called once, in order, each with what the one before made."""
    layers = _layers(graph, name)
    numbers = [int(str(n.target).rpartition(".")[2]) for n in layers]
    if numbers != list(range(count)) or not layers:
        return False
    fed: set[fx.Node] = set()
    for node in graph.nodes:
        if node in layers:
            if node is not layers[0] and not fed.intersection(node.all_input_nodes):
                return False
            fed = {node}
        elif fed.intersection(node.all_input_nodes):
            fed.add(node)
    return True


def _layers(graph: fx.Graph, name: str) -> list[fx.Node]:
    """The calls of the list's members."""
    pattern = re.compile(re.escape(name) + r"\.\d+$")
    return [n for n in graph.nodes if n.op == "call_module" and pattern.match(str(n.target))]


def cut(recording: Recording, site: Site, layers: str, embed: str, base: str) -> tuple[Stages, list[Change]]:
    """The stages, and the changes that let the decoder's forward begin and end in the middle.

    Args:
        recording: the run.
        site: the decoder.
        layers: path of the list.
        embed: path of the token table.
        base: path of the base model. Where the decoder lies in it, what follows the layers is run on every stage,
            because the base model reads what it returns; the modules in it hand on, and the proof sees all else.

    Raises:
        Refused: more than one value goes from layer to layer, or the loop cannot be read.
    """
    name = layers.removeprefix(f"{site.path}.") if site.path else layers
    loop = layer_loop(site.recovered, name)
    carried = _carried(site, loop)
    _alone(recording, site, loop, layers)
    first = recording.calls[f"{layers}.0"]
    stages = Stages(
        decoder=site.path,
        layers=layers,
        count=len(recording.model.get_submodule(layers)),  # type: ignore[arg-type]
        carried=carried,
        tuple_output=isinstance(first.output, (tuple, list)),
        rest=len(first.output) - 1 if isinstance(first.output, (tuple, list)) else 0,
        first=(embed,),
        last=_last(recording, layers, site.path, base),
    )
    changes = [
        Change("parameter", site.recovered.tree, "intermediate"),
        Change("before", loop.node, f"if intermediate is not None:\n    {carried} = intermediate"),
    ]
    if site.path == base:
        leave = f"if {site.recovered.self_name}.hands_on:\n    return {carried}"
        changes.append(Change("after", loop.node, leave))
    return stages, changes


def _carried(site: Site, loop: Loop) -> str:
    names = [n for n in loop.carried if n not in loop.conditional]
    place = site.recovered.place(loop.node)
    if len(names) != 1 or loop.exits:
        told = ", ".join(f"`{n}`" for n in names) or "nothing"
        found = f"{told} goes from layer to layer" if not loop.exits else "the loop is left early"
        raise Refused(Refusal("stages", Reason.STAGE_STATE, found, site.path, place))
    return names[0]


def _alone(recording: Recording, site: Site, loop: Loop, layers: str) -> None:
    """Refuse values that reach later layers beside the one that goes round the loop: lists, stores, attributes."""
    calls = _layers(recording.calls[site.path].graph, layers)
    found = ""
    if site.path in recording.again:
        found = f"`{site.path}`, which loops over the layers, runs several times a step"
    elif shared := _shared(recording.model, layers):
        found = f"`{shared}` is one module in several layers"
    elif (late := crowded(recording.calls[site.path].graph, calls)) is not None:
        found = f"`{late.target}`, or what follows it, reads more than one value that earlier layers made"
    elif pair := smuggled(recording, [str(call.target) for call in calls]):
        found = f"`{pair[1]}` reads what `{pair[0]}` made, without being given it"
    if found:
        place = site.recovered.place(loop.node)
        raise Refused(Refusal("stages", Reason.STAGE_STATE, found, site.path, place))


def _shared(model: nn.Module, layers: str) -> str:
    """A module with parameters that stands in more than one layer; empty if there is none."""
    owner: dict[int, str] = {}
    for name, layer in model.get_submodule(layers).named_children():
        for path, module in layer.named_modules():
            if owner.setdefault(id(module), name) != name and any(True for _ in module.parameters()):
                return f"{layers}.{name}.{path}"
    return ""


def _last(recording: Recording, layers: str, decoder: str, base: str) -> tuple[str, ...]:
    """Modules with parameters that are called behind the last layer, in the decoder and around it."""
    found = _after(recording, decoder, f"{layers}.")
    while decoder != base:
        around = next(
            (p for p, call in recording.calls.items() if any(n.target == decoder for n in call.graph.nodes)), base
        )
        found += _after(recording, around, decoder)
        decoder = around
    return tuple(found)


def _after(recording: Recording, path: str, inner: str) -> list[str]:
    """Children with parameters that the module at ``path`` calls behind those whose path begins with ``inner``."""
    behind: list[str] = []
    passed = False
    for node in recording.calls[path].graph.nodes:
        if node.op != "call_module":
            continue
        if str(node.target).startswith(inner):
            passed = True
            behind = []
        elif passed and any(True for _ in _module(recording, node).parameters()):
            behind.append(str(node.target))
    return behind


def _module(recording: Recording, node: fx.Node) -> nn.Module:
    return recording.model.get_submodule(str(node.target))


def note() -> str:
    """What the decoder's change is for."""
    return _NOTE
