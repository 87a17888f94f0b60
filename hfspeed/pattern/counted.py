"""Positions that a forward counts out by itself, as if its row were one sequence: they become a parameter."""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import fx

from hfspeed.graph.record import Call, Recording
from hfspeed.pattern.edit import Change
from hfspeed.pattern.first_rows import NAME, expression_of, first_rows
from hfspeed.pattern.replacement import place_of
from hfspeed.pattern.site import recovered_of
from hfspeed.refusal import Reason, Refusal, Refused

NOTE = "positions are a parameter"

_NUMBERS = (torch.int64, torch.int32, torch.float32)


@dataclass(frozen=True)
class _Count:
    """An expression of a forward that counts from 0, or from ``start``, to the number of tokens."""

    expression: ast.expr
    node: fx.Node
    start: int

    @property
    def text(self) -> str:
        """The same, from the parameter."""
        value: torch.Tensor = self.node.meta["value"]
        given = NAME if value.ndim == 2 else f"{NAME}[0]"
        cast = "" if value.dtype is torch.int64 else f".to({value.dtype})"
        return f"{given}{cast}" + (f" + {self.start}" if self.start else "")


def counted(
    recording: Recording, base: str, tokens: int, tables: Collection[str] | None = None, *, inside: bool = False
) -> dict[str, list[Change]]:
    """Changes by module, that let the base model be given each token's position where it counts tokens now.

    Args:
        recording: one prompt.
        base: path of the base model, which takes no positions.
        tokens: length of the prompt, which no size of the model equals.
        tables: modules that give as many rows as they are asked for; where this is given, first rows of whatever
            stands fixed are looked up as well.
        inside: the base model takes positions, so only what modules below it count is looked for.

    Returns:
        Nothing where nothing is counted.

    Raises:
        Refused: the parameter cannot be handed down.
    """
    changes: dict[str, list[Change]] = {}
    for path, call in recording.calls.items():
        if not (path.startswith(f"{base}.") or (path and not base)) and (inside or path != base):
            continue
        if tables is not None and path in tables:
            continue  # it gives all of its rows, whatever it counts
        for count in _counts(call, tokens):
            changes.setdefault(path, []).append(Change("replace", count.expression, count.text))
        for change in first_rows(call, tokens, tables) if tables is not None else ():
            changes.setdefault(path, []).append(change)
    for path in list(changes):
        hand_down(recording, base, path, changes)
    for path in list(changes):
        _beside(recording, path, changes)
    return changes


def _counts(call: Call, tokens: int) -> list[_Count]:
    """The outermost expressions of the forward that give positions, and that nothing but sizes decides."""
    starts = {node: start for node in call.graph.nodes if (start := _start(node, tokens)) is not None}
    if not starts:
        return []
    try:
        recovered = recovered_of(call.cls, "forward")  # type: ignore[arg-type]  # mypy takes no class for hashable
    except Refused:
        return []
    found: list[_Count] = []
    for node, first in starts.items():
        if any(source in starts for source in node.all_input_nodes):
            continue  # made of positions that are replaced themselves
        expression = expression_of(recovered, node)
        if expression is None:
            continue
        outer = _Count(expression, node, first)
        for user in (n for n in starts if n is not node):
            around = expression_of(recovered, user)
            inside = around is not None and any(inner is outer.expression for inner in ast.walk(around))
            if inside and starts[user] == first:
                outer = _Count(around, user, first)  # type: ignore[arg-type]  # inside says that it is there
        found.append(outer)
    return found


def _start(node: fx.Node, tokens: int) -> int | None:
    """The first of the positions that ``node`` counts from sizes alone; ``None`` if it does not."""
    if node.op != "call_function" or not _of_sizes(node):
        return None
    value, real = node.meta.get("value"), node.meta.get("shadow")
    if not isinstance(value, torch.Tensor) or not isinstance(real, torch.Tensor) or value.is_complex():
        return None
    if tuple(value.shape) not in {(tokens,), (1, tokens)} or value.dtype not in _NUMBERS:
        return None
    first = int(real.flatten()[0])
    return first if torch.equal(real.flatten().long(), torch.arange(tokens) + first) and first >= 0 else None


def _of_sizes(node: fx.Node) -> bool:
    """Whether nothing that the module was called with goes into ``node``, sizes aside."""
    todo, seen = [node], set()
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        if at.op in {"placeholder", "call_module"}:
            return False
        todo.extend(at.all_input_nodes)
    return True


def hand_down(
    recording: Recording, base: str, path: str, changes: dict[str, list[Change]], name: str = NAME
) -> None:
    """Give the forward at ``path`` the parameter, and every caller above it up to the base model.

    Raises:
        Refused: it is not called in the forward of whoever calls it.
    """
    todo, done = [path], set()
    while todo:
        at = todo.pop()
        if at in done:
            continue
        done.add(at)
        recovered = recovered_of(recording.calls[at].cls, "forward")  # type: ignore[arg-type]  # mypy takes no class
        own = changes.setdefault(at, [])
        if not any(change.kind == "parameter" for change in own):
            own.insert(0, Change("parameter", recovered.tree, name))
        if at == base:
            continue
        for above in _callers(recording, at):
            mine = changes.setdefault(above, [])
            for given in _given(recording.calls[above], at):
                if not any(change.node is given and change.kind == "argument" for change in mine):
                    mine.append(Change("argument", given, f"{name}={name}"))
            todo.append(above)


def _beside(recording: Recording, path: str, changes: dict[str, list[Change]]) -> None:
    """Let what is called in one place with modules that get the parameter take it too, and hand it to nobody."""
    nodes = [node for node in recording.calls[path].graph.nodes if node.op == "call_module"]
    places = [node.meta.get("span") for node in nodes if node.target in changes]
    for node in nodes:
        name = str(node.target)
        if name not in changes and name in recording.calls and node.meta.get("span") in places:
            tree = recovered_of(recording.calls[name].cls, "forward").tree  # type: ignore[arg-type]
            changes[name] = [Change("parameter", tree, NAME)]


def _callers(recording: Recording, path: str) -> list[str]:
    """Who calls the module; of equal layers, one for all."""
    found = [
        above
        for above, call in recording.calls.items()
        if any(node.op == "call_module" and node.target == path for node in call.graph.nodes)
    ]
    if found:
        return found
    raise Refused(Refusal("model", Reason.POSITIONS_NOT_READ, "nobody calls what counts positions", path))


def _given(call: Call, path: str) -> list[ast.Call]:
    """The expressions by which a module calls its child at ``path``."""
    nodes = [node for node in call.graph.nodes if node.op == "call_module" and node.target == path]
    recovered = recovered_of(call.cls, "forward")  # type: ignore[arg-type]  # mypy takes no class for hashable
    found = [expression_of(recovered, node) for node in nodes]
    calls = {id(one): one for one in found if isinstance(one, ast.Call)}
    if found and all(isinstance(one, ast.Call) for one in found):
        return list(calls.values())
    told = f"`{path}` counts positions, and is not called by the forward itself"
    raise Refused(Refusal("model", Reason.POSITIONS_NOT_READ, told, call.path, place_of(call, nodes[0])))
