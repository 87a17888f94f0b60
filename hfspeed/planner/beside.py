"""What modules keep beside the tree: only in the tree do layers and loaded weights take a place."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

import torch
from torch import nn

from hfspeed.plan import Attention, Gated, Heads, History, Keep, Local, Plan, Recurrence, Share, Stacked
from hfspeed.plan.paths import outer
from hfspeed.refusal import Place, Reason, Refusal

REGISTRIES: Final = {"_parameters", "_buffers", "_modules"}
DEPTH: Final = 4
"""How deep containers and functions are looked into."""
STAYS: Final = (Attention, Gated, History, Keep, Local, Recurrence, Share)
"""Ops that leave the module at their path where it is."""
HELP: Final = "reach it through the tree: as a child under one name, or by its parent"
PLAIN: Final = (bool, int, float, str, bytes, type(None), torch.dtype, torch.device, type, ModuleType)
Held = nn.Module | torch.Tensor


def beside(plan: Plan, root: nn.Module) -> tuple[Refusal, ...]:
    """Refusals of what modules keep in lists, dictionaries and functions, and what would be another when served.

    Args:
        plan: says which modules are exchanged for others.
        root: the author's model.
    """
    gone = _exchanged(plan, root)
    stays = {id(one) for path, one in root.named_modules(remove_duplicate=False) if path not in gone}
    buffers = {id(one) for one in root.buffers()}
    found: dict[tuple[type[nn.Module], str], Refusal] = {}
    for path, module in root.named_modules():
        for name, one in kept(module) if path not in gone else ():
            loose = isinstance(one, nn.Parameter) or id(one) in buffers
            if loose or (isinstance(one, nn.Module) and id(one) not in stays and _weighs(one)):
                found.setdefault((type(module), name), refused(path, name, module, root))
    return tuple(found.values())


def refused(path: str, name: str, module: nn.Module, root: nn.Module) -> Refusal:
    """What to tell of the attribute ``name`` of the module at ``path``, at the line that sets it."""
    if isinstance(module, nn.RNNBase):
        return _network(path, module, root)
    told = f"`{name}` keeps a module or parameter beside the tree, where its weights are not loaded"
    return Refusal("model", Reason.USED_ELSEWHERE, told, path, _set_at(type(module), name), help=HELP)


def _network(path: str, module: nn.RNNBase, root: nn.Module) -> Refusal:
    """Of one of torch's recurrent networks, whose weights are in a list of its own: at the line that makes it."""
    kind, (parent, _, name) = type(module).__name__, path.rpartition(".")
    told = (
        f"`{kind}` carries a state from token to token, and there is no kernel that begins with a sequence's own state"
    )
    help_ = "mix tokens by attention, or by one of the recurrences that are served"
    return Refusal("state", Reason.NO_KERNEL, told, path, _set_at(type(root.get_submodule(parent)), name), help=help_)


def kept(module: nn.Module) -> Iterator[tuple[str, Held]]:
    """Modules and tensors that attributes of a module reach, other than its children, parameters and buffers.

    A tensor that is an attribute itself goes where its module goes.
    """
    for name, value in vars(module).items():
        plain = isinstance(value, PLAIN) or (isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter))
        if name not in REGISTRIES and not plain:
            yield from ((name, one) for one in _held(value, DEPTH))


def _exchanged(plan: Plan, root: nn.Module) -> set[str]:
    """Paths of modules that others take the place of, with all that is below them."""
    above = set()
    for op in plan.ops:
        parent = op.path.rpartition(".")[0]
        if isinstance(op, Heads | Stacked):
            above |= {f"{parent}.{part}" if parent else part for part in op.parts}
        elif not isinstance(op, STAYS):
            above.add(op.path)
    paths = (path for path, _ in root.named_modules(remove_duplicate=False))
    return {path for path in paths if above.intersection((*outer(path), path))}


def _weighs(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())


def _held(value: Any, depth: int) -> Iterator[Held]:
    if isinstance(value, nn.Module | torch.Tensor):
        yield value
    elif depth and not isinstance(value, PLAIN):
        for inner in _inside(value):
            yield from _held(inner, depth - 1)


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        yield from value
    elif isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, MethodType):
        yield value.__self__
    elif isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            with suppress(ValueError):  # empty
                yield cell.cell_contents
        yield from (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
    elif not hasattr(type(value), "to_diff_dict"):  # a configuration
        yield from getattr(value, "__dict__", {}).values()  # an object of the author's


def _set_at(cls: type[nn.Module], name: str) -> Place | None:
    """The line of the author's that sets ``name`` on a module, perhaps from another class of the same file."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if file is None or cls.__module__.startswith("torch."):
        return None
    lines = [node.lineno for node in ast.walk(_parsed(file)) if isinstance(node, ast.expr) and _sets(node, name)]
    return Place(file, min(lines)) if lines else None


@functools.lru_cache(maxsize=16)
def _parsed(file: str) -> ast.Module:
    return ast.parse(Path(file).read_text("utf-8"))


def _sets(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == name and isinstance(node.ctx, ast.Store)
    if not isinstance(node, ast.Call):
        return False
    called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    named = any(isinstance(one, ast.Constant) and one.value == name for one in node.args)
    return called in {"setattr", "__setattr__"} and named
