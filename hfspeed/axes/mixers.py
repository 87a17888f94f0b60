"""How a module with states may be split by heads: which rows of which tensor belong to which share of its result.

Nothing is known by name. What lies between the projections is run on random numbers, and gradients say which rows of
a projection, a parameter or a state each block of the result depends on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from torch import fx, nn

from hfspeed.graph.flow import between, origins
from hfspeed.graph.inline import inlined
from hfspeed.graph.nodes import is_attention, is_linear, linears, module_of, width
from hfspeed.graph.record import Call, Recording
from hfspeed.graph.stateful import is_stateful, kernel_at
from hfspeed.pattern.dependence import Needs, blocks_of, needs
from hfspeed.plan.segments import Segment, rows, units

FINEST = 64
"""Blocks that are told apart: as many ranks can share a mixer at most."""
Segments = tuple[Segment, ...]


class Mixes(Exception):  # noqa: N818  it says what was found; whoever asked makes it a refusal
    """No share of the module can be computed from shares alone; the text says why."""


@dataclass(frozen=True)
class Mixing:
    """How one module goes over the ranks.

    Attributes:
        columns: path of each projection whose outputs are split, and their segments.
        rows: paths of the projections that read split values.
        shares: path of each tensor that is split otherwise, the dimension, and its segments.
        states: segments of the state of each stateful call, by the module that makes it, in its order.
        gathered: path of each child that needs the whole of a split value, and its units.
        units: blocks of the result.
        counts: what an integer in the module may count, by a name that is the same in a larger model.
    """

    columns: dict[str, Segments]
    rows: tuple[str, ...]
    shares: dict[str, tuple[int, Segments]]
    states: dict[str, list[Segments]]
    gathered: dict[str, int]
    units: int
    counts: dict[str, Segments] = field(default_factory=dict)


def looked_into(call: Call, recording: Recording) -> Call:
    """``call`` with the graphs of children that have projections or states of their own."""
    found = [
        path
        for node in call.graph.nodes
        if node.op == "call_module" and not is_linear(node) and not is_stateful(node)
        and (inner := recording.calls.get(path := str(node.target))) is not None
        and path not in recording.again
        and (linears(inner.graph) or any(map(is_stateful, inner.graph.nodes)))
    ]  # fmt: skip
    return inlined(call, recording.calls, found) if found else call


def mixing(call: Call, twin: nn.Module) -> Mixing:
    """The split that a module's dataflow allows.

    Args:
        call: its call, see `looked_into`.
        twin: the model with buffers that have values.

    Raises:
        Mixes: there is none.
    """
    stateful = [node for node in call.graph.nodes if is_stateful(node)]
    if any(map(is_attention, call.graph.nodes)):
        raise Mixes("it attends as well")
    columns, ends = _roles(call.graph)
    finest = _finest(stateful, ends)
    gathered = _gathered(call.graph, ends, finest, twin)
    finest = min([finest, *(count for count in gathered.values() if count > 1)])
    whole = [node for node, count in gathered.items() if count == 1]
    found = needs(call, columns, ends, whole, finest, twin)
    for count in (one for one in range(finest, 1, -1) if finest % one == 0):
        if made := _settled(call, found.merged(count), columns, ends, whole, count):
            return made
    raise Mixes("every part of its result depends on all heads")


def _roles(graph: fx.Graph) -> tuple[list[fx.Node], list[fx.Node]]:
    """Projections whose outputs are split, and those that read what states gave."""
    found = linears(graph)
    ends = [node for node in found if _behind_states(node)]
    columns = []
    for node in found:
        readers = between(node, is_linear)[1]
        if node in ends:
            continue
        if all(is_linear(one) and one not in ends for one in readers):
            continue  # one of two projections without anything between: whole, and the second is split
        if not readers <= set(ends):
            raise Mixes(f"`{node.target}` is read by more than what is added up over ranks")
        columns.append(node)
    if not columns or not ends:
        raise Mixes("no projection lies before and behind its states")
    return columns, ends


def _behind_states(node: fx.Node) -> bool:
    """Whether a stateful call lies before a linear, with no other linear between."""
    return bool(node.all_input_nodes) and any(
        is_stateful(one) for one in origins(node.all_input_nodes[0], lambda at: is_linear(at) or is_stateful(at))
    )


def _finest(stateful: list[fx.Node], ends: list[fx.Node]) -> int:
    """The number of heads, or of blocks of channels."""
    scans = [node for node in stateful if (kernel := kernel_at(node)) is not None and kernel.exact_state]
    heads = 0
    for node in scans or stateful:
        kernel = kernel_at(node)
        assert kernel is not None
        if not kernel.by_heads:
            raise Mixes(f"states of kind {kernel.kind} are not split")
        heads = blocks_of(node)
    for node in ends:
        if heads < 2 or width(node.all_input_nodes[0]) % heads:
            raise Mixes(f"{heads} heads do not divide what `{node.target}` reads")
    return max(count for count in range(1, min(heads, FINEST) + 1) if heads % count == 0)


def _gathered(graph: fx.Graph, ends: list[fx.Node], finest: int, twin: nn.Module) -> dict[fx.Node, int]:
    """Children that are given a split value, and how many blocks of it they keep apart."""
    widths = {width(node.all_input_nodes[0]) for node in ends}
    found = {}
    for node in graph.nodes:
        if node.op != "call_module" or is_linear(node) or is_stateful(node) or module_of(node) is None:
            continue
        value = node.meta.get("value")
        if hasattr(value, "shape") and value.ndim and int(value.shape[-1]) in widths:
            found[node] = Needs.blocks_kept(node, finest, twin)
    return found


def _settled(
    call: Call, found: Needs, columns: list[fx.Node], ends: list[fx.Node], whole: list[fx.Node], count: int
) -> Mixing | None:
    """The split into ``count`` blocks; ``None`` if some tensor does not fall into segments."""
    split = {str(node.target): found.segments(node, -1) for node in columns}
    states = {node: found.segments(node, 1) for node in call.graph.nodes if is_stateful(node)}
    inner = [found.segments(node, -1) for node in whole]
    if None in [*split.values(), *states.values(), *inner]:
        return None
    if any(one != ((width(node), count),) for node, one in zip(whole, inner, strict=True)):
        return None
    shares = {}
    for name in found.names():
        dim = found.dim_of(name)
        if dim is None:
            return None
        if dim >= 0:
            cut = found.segments(name, dim)
            assert cut is not None
            shares[name] = (dim, cut)
    by_owner: dict[str, list[Segments]] = {}
    for node, one in states.items():
        by_owner.setdefault(node.meta.get("owner", call.path), []).append(one or ())
    made = Mixing(
        {name: one or () for name, one in split.items()},
        tuple(str(node.target) for node in ends),
        shares,
        by_owner,
        {str(node.target): count for node in whole},
        count,
    )
    if max(map(units, made.columns.values())) != count:
        return None
    made.counts.update(_counts(call.path, made))
    return made


def _counts(path: str, made: Mixing) -> Iterator[tuple[str, Segments]]:
    """Every number that the code may count: rows of segments that lie side by side, and blocks of one."""
    lists: dict[str, Segments] = {**made.columns, **{name: cut for name, (_, cut) in made.shares.items()}}
    for owner, every in made.states.items():
        lists |= {f"{owner}.state {number}": one for number, one in enumerate(every)}
    for name, cut in lists.items():
        told = name.removeprefix(f"{path}.")
        for start in range(len(cut)):
            yield f"{told} blocks {start}", ((cut[start][1], cut[start][1]),)
            for stop in range(start + 1, len(cut) + 1):
                yield f"{told} {start}:{stop}", cut[start:stop]


def counted(value: int, counts: Mapping[str, Segments]) -> dict[str, Segments]:
    """What an integer may count."""
    return {name: cut for name, cut in counts.items() if rows(cut) == value}
