"""Experts in a list that a block visits in a loop: the loop, or the method that has it, becomes one call of all."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from hfspeed.graph.hollow import NARROW, hollow, zeros
from hfspeed.graph.positions import forward_code
from hfspeed.graph.record import Call
from hfspeed.pattern.edit import Change
from hfspeed.pattern.expert_form import expert_form
from hfspeed.pattern.probe import CannotProbe
from hfspeed.pattern.site import recovered_of
from hfspeed.plan import Experts
from hfspeed.refusal import Refused
from hfspeed.source import Recovered

TAKES = ("tokens", "ids", "weights")
NOTE = "loop over {name} -> {name} (experts)"


@dataclass(frozen=True)
class Listed:
    """What becomes of a block: the op in place of its list, and the changes of its forward."""

    op: Experts
    name: str
    changes: tuple[Change, ...]


class Stacked(nn.Module):
    """A list of experts as one module, each of their parameters stacked; how they are named in the list stays known."""

    def __init__(self, experts: nn.ModuleList) -> None:
        super().__init__()
        self.expert = (experts[0],)  # in a tuple, so that it is no child
        self.names = {name.replace(".", "__"): name for name, _ in experts[0].named_parameters()}
        for own, name in self.names.items():
            shape = (len(experts), *experts[0].get_parameter(name).shape)
            self.register_parameter(own, nn.Parameter(torch.empty(shape, device="meta"), requires_grad=False))

    def forward(self, tokens: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """The weighted sum over each token's experts."""
        out = torch.zeros_like(tokens)
        held = dict(self.named_parameters())
        for number in torch.unique(ids).tolist():
            token, slot = torch.where(ids == number)
            own = {name: held[stacked][number] for stacked, name in self.names.items()}
            found = functional_call(self.expert[0], own, (tokens[token],))
            out.index_add_(0, token, found * weights[token, slot, None])
        return out


def listed(call: Call) -> Listed | None:
    """How a closed block can call its list of experts at once; ``None`` if nobody would think of that.

    The names of tokens, experts and weights are those that have the shapes; whether they are the right ones, running
    both tells.

    Raises:
        CannotProbe: the list is no list of experts that a kernel has.
    """
    children = call.module.named_children()
    lists = [(name, child) for name, child in children if isinstance(child, nn.ModuleList) and _alike(child)]
    if len(lists) != 1:
        return None
    ((name, experts),) = lists
    try:
        recovered = recovered_of(call.cls, "forward")  # type: ignore[arg-type]
    except Refused:
        return None
    found = _in_loop(call, recovered, name) or _in_helper(call, recovered, name)
    if found is None:
        return None
    changes, inputs, top_k = found
    stacked = Stacked(experts)
    form = expert_form(stacked, f"{call.path}.{name}", TAKES, inputs, top_k)
    return Listed(_named(form, stacked.names), name, changes)


def _in_loop(call: Call, recovered: Recovered, name: str) -> tuple[tuple[Change, ...], int, int] | None:
    """Changes where the forward itself has the loop, width of a token, and experts per token."""
    loop = _loop(recovered, name)
    if loop is None:
        return None
    line = recovered.line + loop.lineno - 1
    there = _locals(call, forward_code(call.cls), line)  # type: ignore[arg-type]
    result = _result(recovered, loop)
    read = {node.id for node in ast.walk(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    roles = _roles({name: kind for name, kind in there.items() if name != result}, read)
    if result is None or roles is None:
        return None
    text = f"{recovered.self_name}.{name}({', '.join(roles)})"
    shape = there[roles[0]][0]
    if there[result][0] != shape:
        text = f"{text}.view_as({result})"
    changes = (Change("before", loop, f"{result} = {result} + {text}"), Change("erase", loop))
    dead = tuple(Change("erase", stmt) for stmt in _dead(recovered, loop, {result, *roles}))
    return changes + dead, shape[1], there[roles[1]][0][1]


def _in_helper(call: Call, recovered: Recovered, name: str) -> tuple[tuple[Change, ...], int, int] | None:
    """The same where a method of the block has it, which is called with tokens, experts and weights alone."""
    found = []
    for node in ast.walk(recovered.tree):
        if not (isinstance(node, ast.Call) and _of_self(node.func, recovered) and len(node.args) == 3):
            continue
        method = getattr(call.cls, node.func.attr, None)  # type: ignore[attr-defined]
        code = getattr(inspect.unwrap(method), "__code__", None) if callable(method) else None
        if code is not None and name in code.co_names and not node.keywords:
            found.append((node, code))
    if len(found) != 1:
        return None
    ((node, code),) = found
    there = _locals(call, code, None)
    names = code.co_varnames[1 : code.co_argcount]
    roles = _roles({name: there[name] for name in names if name in there}, set(names))
    if roles is None or len(names) != 3:
        return None
    texts = [ast.unparse(node.args[names.index(role)]) for role in roles]
    changes = (Change("replace", node, f"{recovered.self_name}.{name}({', '.join(texts)})"),)
    return changes, there[roles[0]][0][1], there[roles[1]][0][1]


def _alike(child: nn.ModuleList) -> bool:
    """More than one module, all of one class and with parameters of the same shapes."""
    shapes = {
        (type(one), tuple((name, tuple(p.shape)) for name, p in one.named_parameters()), len(list(one.buffers())))
        for one in child
    }
    return len(child) > 1 and len(shapes) == 1 and all(kind[1] and not kind[2] for kind in shapes)


def _loop(recovered: Recovered, name: str) -> ast.For | None:
    """The one loop of the forward in which the list is read; nothing else reads it."""
    loops = [node for node in recovered.tree.body if isinstance(node, ast.For) and _reads(node, recovered, name)]
    if len(loops) != 1:
        return None
    outside = sum(_reads(stmt, recovered, name) for stmt in recovered.tree.body if stmt is not loops[0])
    leaves = any(isinstance(node, ast.Return | ast.Yield) for node in ast.walk(loops[0]))
    return None if outside or leaves or loops[0].orelse else loops[0]


def _reads(tree: ast.AST, recovered: Recovered, name: str) -> int:
    return sum(_of_self(node, recovered) and node.attr == name for node in ast.walk(tree))  # type: ignore[attr-defined]


def _of_self(node: ast.AST, recovered: Recovered) -> bool:
    return (
        isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == recovered.self_name
    )


def _locals(call: Call, code: CodeType | None, line: int | None) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Shape and dtype of every local tensor of ``code`` as it comes to ``line``, or begins; in order of definition."""
    found: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code is not code:
            return None
        if not found and (line is None or (event == "line" and frame.f_lineno == line)):
            tensors = {k: v for k, v in frame.f_locals.items() if isinstance(v, torch.Tensor)}
            found.update({name: (tuple(value.shape), value.dtype) for name, value in tensors.items()})
        return trace

    before = sys.gettrace()
    for dtype in (torch.float64, NARROW):
        found.clear()
        sys.settrace(trace)
        try:
            with torch.no_grad(), torch._C.DisableTorchFunction():
                hollow(call.module, dtype)(*zeros(call.args, dtype), **zeros(call.kwargs, dtype))
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError):
            continue
        finally:
            sys.settrace(before)
        return found
    return {}


def _roles(there: dict[str, tuple[tuple[int, ...], torch.dtype]], read: set[str]) -> tuple[str, str, str] | None:
    """Names of tokens, chosen experts and weights: by shape, then those that are read, then the latest."""

    def best(names: list[str]) -> str | None:
        ranked = sorted(enumerate(names), key=lambda one: (one[1] in read, one[0]))
        return ranked[-1][1] if ranked else None

    flat = {name: kind for name, kind in there.items() if len(kind[0]) == 2}
    floats = {name: shape for name, (shape, dtype) in flat.items() if dtype.is_floating_point}
    whole = [name for name, (_, dtype) in flat.items() if dtype in {torch.int64, torch.int32}]
    ids = best([name for name in whole if flat[name][0] in floats.values()])
    if ids is None:
        return None
    weights = best([name for name, shape in floats.items() if shape == flat[ids][0]])
    rows = flat[ids][0][0]
    tokens = best([name for name, shape in floats.items() if shape[0] == rows and name != weights and name in read])
    return (tokens, ids, weights) if tokens and weights else None


def _result(recovered: Recovered, loop: ast.For) -> str | None:
    """The one name that the loop writes into and that is read behind it."""
    written = set(_written(loop))
    behind = [stmt for stmt in recovered.tree.body if stmt.lineno > loop.lineno]
    read = {node.id for stmt in behind for node in ast.walk(stmt) if isinstance(node, ast.Name)}
    found = sorted(written & read)
    return found[0] if len(found) == 1 else None


def _written(tree: ast.AST) -> Iterator[str]:
    """Names that are assigned to, or written into by subscript or by a method that ends in ``_``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            yield node.value.id
        method = node.func if isinstance(node, ast.Call) else None
        if isinstance(method, ast.Attribute) and method.attr.endswith("_") and isinstance(method.value, ast.Name):
            yield method.value.id


def _dead(recovered: Recovered, loop: ast.For, kept: set[str]) -> Iterator[ast.stmt]:
    """Statements of the body before the loop whose names nothing reads any more once it is gone."""
    body = [stmt for stmt in recovered.tree.body if stmt is not loop]
    while True:
        for stmt in reversed([stmt for stmt in body if stmt.lineno < loop.lineno]):
            names = set(_written(stmt))
            others = {
                node.id
                for other in body
                if other is not stmt
                for node in ast.walk(other)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
            }
            calls_child = any(isinstance(n, ast.Call) and _of_self(n.func, recovered) for n in ast.walk(stmt))
            if names and isinstance(stmt, ast.Assign | ast.With) and not calls_child and not names & (others | kept):
                body.remove(stmt)
                yield stmt
                break
        else:
            return


def _named(form: Experts, names: dict[str, str]) -> Experts:
    """The form with the names that parameters have in each expert."""
    return replace(
        form,
        apart=True,
        skips=False,
        up=tuple(names[name] for name in form.up),
        down=names[form.down],
        up_bias=tuple(names[name] for name in form.up_bias),
        down_bias=names[form.down_bias] if form.down_bias else None,
    )


__all__ = ["NOTE", "TAKES", "CannotProbe", "Listed", "listed"]
