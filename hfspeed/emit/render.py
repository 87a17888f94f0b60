"""A plan's forwards as one readable module: subclasses of the author's classes, with explicit imports."""

from __future__ import annotations

import ast
from collections import Counter

from hfspeed.emit.imports import Imports
from hfspeed.emit.names import local
from hfspeed.emit.origin import Origin, definition, origin
from hfspeed.errors import PlanError, RefusedError
from hfspeed.plan import Forward, Plan
from hfspeed.refusal import Reason, Refusal, Refused
from hfspeed.source import Edits, Recovered
from hfspeed.source.layout import indented

_WIDTH = 100


def render(plan: Plan) -> str:
    """The text of the module; the same plan and the same author's code give the same bytes.

    Raises:
        PlanError: two forwards have one name, or a text is no function; SubjectError: the author's
            module cannot be imported.
        RefusedError: a forward cannot be moved to another class without a change of meaning.
    """
    twice = [name for (name, _), count in Counter((f.name, f.method) for f in plan.forwards).items() if count > 1]
    if twice:
        raise PlanError(f"the plan of {plan.architecture} emits two classes named {twice[0]}")
    try:
        origins = [origin(forward) for forward in plan.forwards]
        imports = Imports(origins)
        groups: dict[str, list[Origin]] = {}
        for one in origins:
            groups.setdefault(one.forward.name, []).append(one)
        classes = [_class(methods, imports) for methods in groups.values()]
    except Refused as refused:
        raise RefusedError(plan.architecture, (refused.refusal,)) from refused
    head = f'"""{plan.architecture} as hfspeed serves it; generated, do not edit."""'
    blocks = [f"{head}\n\nfrom __future__ import annotations", imports.text()]
    top = "\n\n".join(block for block in blocks if block)
    return "\n\n\n".join([top, *classes]) + "\n"


def _class(methods: list[Origin], imports: Imports) -> str:
    forward = methods[0].forward
    head = f'class {forward.name}({imports.alias(forward.module)}.{forward.base}):\n    """{_told(forward)}"""'
    return "\n\n".join([head, *(_method(one, imports) for one in methods)])


def _method(one: Origin, imports: Imports) -> str:
    recovered = _recovered(one)
    edits = Edits(recovered)
    _spell(edits, imports.spelled(one, recovered))
    _keep_parent(edits, one, imports)
    return indented(edits.apply(), "    ")


def _recovered(one: Origin) -> Recovered:
    tree = definition(one.forward)
    first = [*tree.args.posonlyargs, *tree.args.args][0]
    return Recovered(
        text=one.forward.text.strip("\n"),
        tree=tree,
        file=f"<{one.forward.name}>",
        line=1,
        indent=0,
        cls_module=one.owner.__module__,
        cls_name=one.owner.__qualname__,
        self_name=first.arg,
        module=one.module,
    )


def _spell(edits: Edits, other: dict[str, str]) -> None:
    """Write each of the names in ``other`` the other way, wherever it is looked up."""
    recovered = edits.recovered
    shadowed = sorted(other.keys() & local(recovered.text))
    if shadowed:
        raise _refused(recovered, f"`{shadowed[0]}` is both a name of the module and of a nested function")
    for node in ast.walk(recovered.tree):
        if isinstance(node, ast.Name) and node.id in other:
            edits.replace(node, other[node.id])
        if isinstance(node, ast.Global):
            raise _refused(recovered, f"`global {node.names[0]}` would rebind another module's name")


def _keep_parent(edits: Edits, one: Origin, imports: Imports) -> None:
    """``super()`` and ``__class__`` mean the class they are written in; here that is the author's."""
    recovered = edits.recovered
    for node in ast.walk(recovered.tree):
        if isinstance(node, ast.Name) and node.id == "__class__":
            edits.replace(node, imports.named(one.owner))
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "super":
            continue
        if node.args or node.keywords:
            continue
        if _in_nested_function(recovered, node):
            raise _refused(recovered, "`super()` in a nested function")
        edits.replace(node, f"super({imports.named(one.owner)}, {recovered.self_name})")


def _in_nested_function(recovered: Recovered, node: ast.AST) -> bool:
    parent = recovered.parent_of(node)
    while parent is not None and parent is not recovered.tree:
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return True
        parent = recovered.parent_of(parent)
    return False


def _refused(recovered: Recovered, found: str) -> Refused:
    return Refused(Refusal("emit", Reason.UNSUPPORTED_SYNTAX, found, recovered.cls_name))


def _told(forward: Forward) -> str:
    """The notes as a docstring's content."""
    notes = [note.replace("\\", "\\\\").replace('"""', r"\"\"\"") for note in forward.notes]
    line = "; ".join(notes) or f"The forward of {forward.base}"
    if len(line) + 11 <= _WIDTH and not line.endswith('"'):
        return f"{line}."
    return ";\n    ".join(notes) + ".\n    "
