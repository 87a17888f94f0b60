"""Which linears of a module are split over ranks: pairs of column and row that a split value connects.

A linear is a column if everything that reads its result ends in rows; a linear is a row if everything it
reads comes from columns. In between, attention works head by head, and a module with parameters over the
whole split width is fed the gathered value. Whether the code in between really passes shares through is
decided by running it on simulated ranks, not here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import fx

from hfspeed.graph.flow import between, origins
from hfspeed.graph.inline import inlined
from hfspeed.graph.nodes import is_attention, is_linear, linears, module_of, value_of, width
from hfspeed.graph.record import Call, Recording
from hfspeed.pattern import own


@dataclass(frozen=True)
class Block:
    """How one module's linears may be split.

    Attributes:
        columns: path of each column and its units (blocks of outputs that stay together).
        rows: paths of the rows.
        gathered: path of each child with parameters over a split width, and the units of that width.
        attention: the split goes through the attention interface.
        attends: paths of the modules that call it.
        plain: those of ``gathered`` that have no weights.
        own: path of each tensor of the module's own that meets split values, and how it may be split; see `own.met`.
    """

    columns: dict[str, int]
    rows: tuple[str, ...]
    gathered: dict[str, int]
    attention: bool
    attends: frozenset[str] = field(default=frozenset(), compare=False)
    plain: frozenset[str] = field(default=frozenset(), compare=False)
    own: own.Ways = field(default_factory=dict, compare=False)


def across(call: Call, recording: Recording) -> Call:
    """``call`` with a look into children that only together hold a pair: the split value leaves one and enters another.

    A module with linears of its own is left as it is, and so is one whose children are lists of layers.
    """
    if linears(call.graph):
        return call
    start = len(call.path) + 1 if call.path else 0
    found = []
    for node in call.graph.nodes:
        path = str(node.target)
        inner = recording.calls.get(path) if node.op == "call_module" and path not in recording.again else None
        if inner and "." not in path[start:] and linears(inner.graph) and block(inner) is None:
            found.append(path)
    return inlined(call, recording.calls, found) if len(found) > 1 else call


def block(call: Call) -> Block | None:
    """The split that a module's dataflow suggests; ``None`` if no value could be split in it."""
    columns, rows = _roles(call.graph)
    if not any(is_attention(node) for column in columns for node in between(column, is_linear)[0]):
        columns, rows = _heads(call.graph) or (columns, rows)
    if not columns:
        return None
    units: dict[str, int] = {}
    gathered: dict[str, int] = {}
    attends: set[str] = set()
    plain: set[str] = set()
    ways: own.Ways = {}
    for column in columns:
        carriers, _ = between(column, is_linear)
        heads = [n for n in carriers if is_attention(n)]
        attends |= {node.meta.get("owner", call.path) for node in heads}
        units[str(column.target)] = _units(column, heads)
        own.add(ways, own.met(call.graph, column, carriers, units[str(column.target)]))
        for node in carriers:
            mixes = own.mixes(node, width(column))
            if mixes or _has_width(node, width(column)):
                gathered[str(node.target)] = units[str(column.target)]
                plain |= {str(node.target)} if mixes else set()
    names = tuple(str(row.target) for row in rows)
    return Block(units, names, gathered, bool(attends), frozenset(attends), frozenset(plain), ways)


def _roles(graph: fx.Graph) -> tuple[list[fx.Node], list[fx.Node]]:
    """Columns and rows, each column's readers all rows and each row's origins all columns."""
    found = linears(graph)
    columns: list[fx.Node] = []
    rows: list[fx.Node] = []
    for node in found:
        sources = origins(node.all_input_nodes[0]) if node.all_input_nodes else ()
        if sources and not any(source in rows for source in sources):
            rows.append(node)
        else:
            columns.append(node)
    settled = False
    while not settled:
        keep = [c for c in columns if _ends(c) and _ends(c) <= set(rows)]
        hold = [r for r in rows if set(origins(r.all_input_nodes[0])) <= set(keep)]
        settled = len(keep) == len(columns) and len(hold) == len(rows)
        columns, rows = keep, hold
    return columns, rows


def _heads(graph: fx.Graph) -> tuple[list[fx.Node], list[fx.Node]] | None:
    """Columns that give heads to attention, and rows that take its result, where heads get something whole as well.

    Latent attention is so: all heads share the turned part of the key, and the latents stay whole.
    """
    calls = [node for node in graph.nodes if is_attention(node)]
    rows = {row for call in calls for row in _ends(call)}
    if not calls or not all(is_linear(row) for row in rows):
        return None

    def splits(node: fx.Node) -> bool:
        return is_linear(node) and bool(_ends(node)) and _ends(node) <= rows

    beside = {one for row in rows for one in origins(row.all_input_nodes[0], _linear_or_attention)} - set(calls)
    if not all(splits(one) for one in beside):
        return None
    columns = set(beside)
    for call in calls:
        for given in call.args[1:4]:
            own = {one for one in origins(given) if splits(one)} if isinstance(given, fx.Node) else set()
            if not own:
                return None
            columns |= own
    return [n for n in graph.nodes if n in columns], [n for n in graph.nodes if n in rows]


def _linear_or_attention(node: fx.Node) -> bool:
    return is_linear(node) or is_attention(node)


def _ends(node: fx.Node) -> set[fx.Node]:
    return between(node, is_linear)[1]


def _units(column: fx.Node, attention: list[fx.Node]) -> int:
    """Heads, if the value is made into query, key or value; else every output is a unit of its own."""
    counts = []
    for argument in attention[0].args[1:4] if attention else ():
        if isinstance(argument, fx.Node) and column in origins(argument):
            counts.append(int(value_of(argument).shape[1]))
    return min(counts, default=width(column))


def _has_width(node: fx.Node, wide: int) -> bool:
    """A child with parameters that reads values of the whole split width."""
    module = module_of(node)
    if module is None or not any(True for _ in module.parameters()):
        return False
    return any(width(a) == wide for a in node.all_input_nodes)
