"""Several projections of one value become one call: where it goes, and that it may go there."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from torch import fx

from hfspeed.pattern.edit import Change
from hfspeed.pattern.site import Site
from hfspeed.refusal import Reason, Refusal, Refused
from hfspeed.source.blocks import innermost_common_block
from hfspeed.source.effects import written


def projections(site: Site, wanted: str, parts: Sequence[fx.Node]) -> list[ast.Call]:
    """The author's calls of ``parts``, each of them plain and the only mention of its child.

    Raises:
        Refused: see `Site.plain_call`; or a child is mentioned elsewhere than in its call.
    """
    return [site.plain_call(node, wanted) for node in parts]


def stacked(site: Site, wanted: str, parts: Sequence[fx.Node], name: str) -> list[Change]:
    """Changes that compute all ``parts`` by ``self.<name>`` just before the first of them is needed.

    Raises:
        Refused: a call is not plain, or the input may be written between the first and the last.
    """
    calls = projections(site, wanted, parts)
    first, value = hoisted(site, wanted, calls, parts)
    me = site.recovered.self_name
    names = site.free_locals([str(node.target).rpartition(".")[2] for node in parts])
    line = f"{', '.join(names)} = {me}.{name}({value}).split({me}.{name}_sizes, dim=-1)"
    changes = [Change("before", first, line, tuple(names))]
    changes += [Change("replace", c, n) for c, n in zip(calls, names, strict=True)]
    return changes + folded(site, wanted, calls, parts)


def hoisted(
    site: Site, wanted: str, calls: Sequence[ast.Call], parts: Sequence[fx.Node]
) -> tuple[ast.stmt, str]:
    """The statement before which the merged call goes, and the text of its input.

    Raises:
        Refused: the calls are in branches that do not dominate one another, or the input is written.
    """
    recovered = site.recovered
    inputs = [_input(call) for call in calls]
    statements = [recovered.statement_of(call) for call in calls]
    block, index = innermost_common_block(recovered, [_unguarded(site, call) for call in calls])
    last = max(i for i, stmt in enumerate(block) if any(_holds(stmt, s) for s in statements))
    span = block[index : last + 1]
    risky = [*span[:-1], *([span[-1]] if hasattr(span[-1], "body") else [])]
    names = {n.id for value in inputs for n in ast.walk(value) if isinstance(n, ast.Name)}
    names -= {recovered.self_name}
    inside = {
        n.target.id
        for stmt in span
        for n in ast.walk(stmt)
        if isinstance(n, ast.NamedExpr) and isinstance(n.target, ast.Name)
    }
    harmed = names & (written(risky, recovered.tree.body) | inside)
    if harmed:
        first, final = (str(parts[i].target).rpartition(".")[2] for i in (0, -1))
        found = f"`{sorted(harmed)[0]}` is written between `{first}` and `{final}`"
        help_ = f"write to `{sorted(harmed)[0]}` after `{final}`"
        raise Refused(_refusal(site, wanted, Reason.INPUT_WRITTEN, found, parts[-1], help_))
    earliest = min(calls, key=lambda call: recovered.offsets(call))
    return block[index], recovered.segment(_input(earliest))


def folded(
    site: Site, wanted: str, calls: Sequence[ast.Call], parts: Sequence[fx.Node]
) -> list[Change]:
    """Changes for what else the forward says of the merged children: guards on their existence are folded.

    Raises:
        Refused: a child is used in another way, which could not work once it is merged.
    """
    changes = []
    functions = {id(call.func) for call in calls}
    names = {str(node.target).rpartition(".")[2]: node for node in parts}
    for mention in ast.walk(site.recovered.tree):
        if not isinstance(mention, ast.Attribute) or mention.attr not in names:
            continue
        me = isinstance(mention.value, ast.Name) and mention.value.id == site.recovered.self_name
        if not me or id(mention) in functions:
            continue
        guard = site.recovered.parent_of(mention)
        answer = _existence(guard, mention)
        if answer is None or guard is None:
            found = f"`{mention.attr}` is used other than by calling it"
            node = names[mention.attr]
            place = site.recovered.place(mention)
            refusal = _refusal(site, wanted, Reason.USED_ELSEWHERE, found, node)
            raise Refused(Refusal(**{**vars(refusal), "place": place}))
        changes.append(Change("replace", guard, str(answer)))
    return changes


def _existence(guard: ast.AST | None, mention: ast.expr) -> bool | None:
    """What ``child is None`` and ``child is not None`` say of a child that exists."""
    if not isinstance(guard, ast.Compare) or guard.left is not mention or len(guard.ops) != 1:
        return None
    other = guard.comparators[0]
    if not isinstance(other, ast.Constant) or other.value is not None:
        return None
    if isinstance(guard.ops[0], ast.IsNot):
        return True
    return False if isinstance(guard.ops[0], ast.Is) else None


def _unguarded(site: Site, call: ast.Call) -> ast.AST:
    """The call, or the whole ``call if child is not None else …`` whose guard will be folded."""
    outer = site.recovered.parent_of(call)
    while isinstance(outer, ast.expr):
        if isinstance(outer, ast.IfExp) and isinstance(outer.test, ast.Compare):
            mention = outer.test.left
            child = isinstance(call.func, ast.Attribute) and isinstance(mention, ast.Attribute)
            if child and mention.attr == call.func.attr and _existence(outer.test, mention) is not None:  # type: ignore[union-attr]
                return outer
        outer = site.recovered.parent_of(outer)
    return call


def _input(call: ast.Call) -> ast.expr:
    return call.args[0] if call.args else call.keywords[0].value


def _holds(outer: ast.stmt, inner: ast.stmt) -> bool:
    return any(node is inner for node in ast.walk(outer))


def _refusal(
    site: Site, wanted: str, reason: Reason, found: str, node: fx.Node, help: str = ""
) -> Refusal:
    return Refusal(wanted, reason, found, site.path, site.place(node), 2, help)
