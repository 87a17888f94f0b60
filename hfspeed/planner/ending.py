"""A base model that goes on to make logits: where hidden states stand in its forward, and how it returns them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import fx

from hfspeed.errors import SubjectError
from hfspeed.graph.positions import Span
from hfspeed.graph.record import Call, Recording
from hfspeed.graph.tensors import tensors
from hfspeed.pattern.edit import Change
from hfspeed.pattern.replacement import place_of
from hfspeed.pattern.site import recovered_of
from hfspeed.plan import Ending
from hfspeed.planner.ends import projection_of, table_of
from hfspeed.refusal import Place, Reason, Refusal, Refused
from hfspeed.source import Recovered

NOTE: Final = "returns hidden states, before the head"
_ONCE = (ast.For, ast.While, ast.FunctionDef, ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.AsyncFor)


@dataclass(frozen=True)
class Found:
    """Where a base model ends.

    Attributes:
        base: its path.
        ending: for the plan.
        hidden: the node of its graph that gives hidden states.
        expression: of its forward, the same.
        recovered: its forward.
    """

    base: str
    ending: Ending
    hidden: fx.Node
    expression: ast.expr
    recovered: Recovered

    @property
    def changes(self) -> list[Change]:
        """The forward returns hidden states where they are; what follows in the same block is never reached."""
        stmt = self.recovered.statement_of(self.expression)
        block = self.recovered.block_of(stmt)
        at = next(number for number, one in enumerate(block) if one is stmt)
        leave = Change("before", stmt, f"return {self.recovered.segment(self.expression)}")
        return [leave, Change("delete", stmt), *(Change("erase", one) for one in block[at + 1 :])]

    def tangled(self) -> Refusal:
        """Hidden states are made in an expression that is rewritten for another reason."""
        text = "hidden states stand in an expression that is rewritten as well"
        place = self.recovered.place(self.expression)
        help_ = "give them a name before the head is called: `hidden = ...`"
        return Refusal("model", Reason.CANNOT_RUN, text, self.base, place, help=help_)


def ending(model: Any, recording: Recording) -> Found:
    """Where the base model ends, if one and the same forward goes on to make logits.

    Raises:
        SubjectError: that cannot be told.
    """
    return _Search(model, recording).found()


class _Search:
    def __init__(self, model: Any, recording: Recording) -> None:
        self.model, self.recording = model, recording
        self.table, self.head = table_of(model), projection_of(model)
        self.tokens = int(next(tensors((recording.calls[""].kwargs, recording.calls[""].args))).shape[-1])

    def found(self) -> Found:
        call, head = self._top(*self._made())
        start, chosen = self._data(call, head), head
        if start is None:
            raise self._no(call, head, "what the head is given is no hidden state of each token")
        try:
            recovered = recovered_of(call.cls, "forward")  # type: ignore[arg-type]  # mypy takes no class for hashable
        except Refused as no:
            raise self._no(call, head, no.refusal.found) from no
        hidden, given = start, head.op == "call_module"
        while not self._whole(hidden):  # one of the tokens was picked out
            before = [n for n in hidden.all_input_nodes if self._float(n)]
            if hidden.op == "call_module" or len(before) != 1:
                raise self._no(call, hidden, "hidden states of all tokens are not there where logits are made")
            hidden, given = before[0], False
        expression = self._given(recovered, head) if given else None
        if expression is None and hidden.op == "call_module" and isinstance(hidden.meta.get("value"), torch.Tensor):
            expression, chosen, given = self._at(recovered, hidden), hidden, False
        if expression is None:
            hidden, chosen, expression = self._helped(call, recovered, head)
            given = True
        if self._repeats(recovered, expression) or str(chosen.target) in self.recording.again:
            raise self._no(call, head, "the head is called in a loop, or more than once")
        absent = tuple(self._absent(call, hidden, chosen))
        return Found(call.path, Ending(str(chosen.target), given, absent), hidden, expression, recovered)

    def _made(self) -> tuple[Call, fx.Node]:
        """The last place at which as many numbers are made of a hidden state as there are tokens."""
        rows = int(self.table.weight.shape[0])
        last: tuple[Call, fx.Node] | None = None
        for call in self.recording.calls.values():
            for node in call.graph.nodes:
                if node.op == "call_module" and node.meta.get("module") is self.head is not self.table:
                    last = (call, node)
        if last is not None:
            return last
        for call in self.recording.calls.values():
            for node in call.graph.nodes:
                value = node.meta.get("value")
                fits = node.op == "call_function" and isinstance(value, torch.Tensor) and value.is_floating_point()
                if fits and value.ndim > 1 and value.shape[-1] == rows and self._data(call, node) is not None:
                    return call, node
        raise self._no(self.recording.calls[""], None, "no operation makes logits")

    def _top(self, call: Call, node: fx.Node) -> tuple[Call, fx.Node]:
        """The innermost module that leads both to the token table and to the head, and what in it leads to the head."""
        while not any(below is self.table for below in call.module.modules()):
            above = [
                (other, n)
                for other in self.recording.calls.values()
                for n in other.graph.nodes
                if n.op == "call_module" and n.target == call.path
            ]
            if len(above) != 1:
                raise self._no(call, node, "the head is not called once, below a module that holds the token table")
            call, node = above[0]
        return call, node

    def _data(self, call: Call, node: fx.Node) -> fx.Node | None:
        """What goes into the head: as wide as hidden states are."""
        wide = {int(part.weight.shape[-1]) for part in (self.table, self.head) if hasattr(part, "weight")}
        for one in node.all_input_nodes:
            value: Any = one.meta.get("value")
            if self._float(one) and value.ndim > 1 and value.shape[-1] in wide:
                return one
        if node.op == "call_module" and node.target != call.path:  # a module of the head's own, perhaps with a norm
            return next((one for one in node.all_input_nodes if self._whole(one)), None)
        return None

    def _float(self, node: fx.Node) -> bool:
        value = node.meta.get("value")
        return isinstance(value, torch.Tensor) and value.is_floating_point() and node.op != "get_attr"

    def _whole(self, node: fx.Node) -> bool:
        """Whether it gives a hidden state of each token."""
        value: Any = node.meta.get("value")
        return self._float(node) and value.ndim == 3 and tuple(value.shape[:2]) in {(1, self.tokens), (self.tokens, 1)}

    def _expression(self, recovered: Recovered, node: fx.Node, *, direct: bool = True) -> ast.expr | None:
        span = node.meta.get("span")
        if not isinstance(span, Span) or span.file != recovered.file or (direct and not span.direct):
            return None
        found = recovered.node_at(span.line, span.end_line, span.column, span.end_column)
        return found if isinstance(found, ast.expr) else None

    def _at(self, recovered: Recovered, node: fx.Node) -> ast.expr | None:
        found = self._expression(recovered, node)
        return None if found is None or self._repeats(recovered, found) else found

    def _given(self, recovered: Recovered, node: fx.Node) -> ast.expr | None:
        """The one thing that a child is called with, in the forward itself."""
        found = self._expression(recovered, node)
        return _only(found) if found is not None else None

    def _helped(self, call: Call, recovered: Recovered, head: fx.Node) -> tuple[fx.Node, fx.Node, ast.expr]:
        """The same where a method of one argument leads from hidden states to logits."""
        found = self._expression(recovered, head, direct=False)
        given = _only(found) if found is not None else None
        inside = [n for n in call.graph.nodes if n.meta.get("span") == head.meta.get("span")]
        for node in inside:
            outside = [n for n in node.all_input_nodes if n not in inside and self._whole(n)]
            if given is not None and node.op == "call_module" and len(outside) == 1:
                return outside[0], node, given
        raise self._no(call, head, "where hidden states become logits is not seen in its forward")

    def _repeats(self, recovered: Recovered, expression: ast.expr) -> bool:
        node: ast.AST | None = expression
        while (node := recovered.parent_of(node)) is not None and node is not recovered.tree:  # type: ignore[arg-type]
            if isinstance(node, _ONCE):
                return True
        return False

    def _absent(self, call: Call, hidden: fx.Node, at: fx.Node) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Modules called before the end, each once, with the shapes of what they give."""
        kind, seen = hidden.meta["value"].dtype, set()
        for node in call.graph.nodes:
            if node is at:
                return
            if node.op == "call_module" and node.target not in seen:
                seen.add(node.target)
                shapes = self._shapes(node.meta.get("value"), kind)
                if shapes is None:
                    told = type(node.meta.get("value")).__name__
                    raise self._no(call, node, f"`{node.target}` gives a {told}, for which nothing can stand in")
                yield str(node.target), shapes

    def _shapes(self, value: Any, kind: torch.dtype) -> tuple[str, ...] | None:
        """As `hfspeed.graph.hollow.template` says it, with ``B``; a tuple of one has an empty shape behind it."""
        if isinstance(value, torch.Tensor):
            return (self._shape(value, kind),)
        if value is None:
            return ("none",)
        if type(value) not in {tuple, list}:
            return None
        parts = tuple(self._shape(v, kind) if isinstance(v, torch.Tensor) else "none" for v in value)
        return (*parts, "") if len(parts) == 1 else parts

    def _shape(self, value: torch.Tensor, kind: torch.dtype) -> str:
        sizes = ["T" if size == self.tokens else str(size) for size in value.shape]
        if len(sizes) > 1 and sizes[0] == "1" and "T" in sizes:
            sizes[0] = "B"
        return "x".join(sizes) + ("" if value.dtype == kind else f"_{str(value.dtype).removeprefix('torch.')}")

    def _no(self, call: Call, node: fx.Node | None, why: str) -> SubjectError:
        name, own = type(self.model).__name__, type(call.module).__name__
        place = place_of(call, node) or Place(inspect.getfile(type(self.model)), 1)
        return SubjectError(
            f"{place}: {name} makes logits in the forward that makes hidden states ({own}), and hfspeed cannot tell "
            f"where one becomes the other: {why}; write `hidden = …` for all tokens and `logits = self.head(hidden)` "
            "in that forward, or keep the token table and the decoder in one child and call it once",
            place,
        )


def _only(call: ast.expr) -> ast.expr | None:
    """The one argument of a call."""
    if not isinstance(call, ast.Call):
        return None
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    return values[0] if len(values) == 1 and not isinstance(values[0], ast.Starred) else None
