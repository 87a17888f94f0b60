"""Several projections of one value become one call: where it goes, and that it may go there."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from torch import fx

from hfspeed.pattern.edit import Change
from hfspeed.pattern.site import Site
from hfspeed.pattern.straight import before
from hfspeed.refusal import Reason, Refusal, Refused
from hfspeed.source.blocks import always, between, dominating_block
from hfspeed.source.effects import bound, dotted, written


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
    first, value, guards = hoisted(site, wanted, calls, parts)
    me = site.recovered.self_name
    names = site.free_locals([str(node.target).rpartition(".")[2] for node in parts])
    line = f"{', '.join(names)} = {me}.{name}({value}).split({me}.{name}_sizes, dim=-1)"
    changes = [Change("before", first, line, tuple(names))]
    changes += [Change("replace", c, n) for c, n in zip(calls, names, strict=True)]
    return changes + guards + folded(site, wanted, calls, parts)


def hoisted(
    site: Site, wanted: str, calls: Sequence[ast.Call], parts: Sequence[fx.Node]
) -> tuple[ast.stmt, str, list[Change]]:
    """The statement before which the merged call goes, the text of its input, and what checks that it is the right one.

    Raises:
        Refused: the calls are in branches that do not dominate one another, or the input is written.
    """
    recovered = site.recovered
    block, index = dominating_block(recovered, [_unguarded(site, call) for call in calls])
    ordered = sorted(calls, key=recovered.offsets)
    final = recovered.statement_of(ordered[-1])
    last = max(i for i, stmt in enumerate(block) if _holds(stmt, final))
    span = block[index : last + 1]
    lead, others = _guarded(site, block, calls)
    alike = [call for call in calls if not any(call is one for one in others)]
    names = {name for call in alike for n in ast.walk(_input(call)) if (name := dotted(n))} - {recovered.self_name}
    risky: list[ast.AST] = [*span] if hasattr(span[-1], "body") else [*span[:-1]]
    risky += before(recovered, final, ordered[-1], calls)
    inside = {n.target.id for stmt in span for n in ast.walk(stmt) if isinstance(n, ast.NamedExpr)}
    if harmed := names & (written(risky, recovered.tree.body) | inside):
        one, other = (str(parts[i].target).rpartition(".")[2] for i in (0, -1))
        found = f"`{min(harmed)}` is written between `{one}` and `{other}`"
        help_ = f"write to `{min(harmed)}` after `{other}`"
        raise Refused(_refusal(site, wanted, Reason.INPUT_WRITTEN, found, parts[-1], help_))
    _one_value(site, wanted, [(c, p) for c, p in zip(calls, parts, strict=True) if c in alike], block)
    value = recovered.segment(_input(lead))
    return block[index], value, _guards(site, value, others)


def _one_value(
    site: Site, wanted: str, calls: Sequence[tuple[ast.Call, fx.Node]], block: Sequence[ast.stmt]
) -> None:
    """Refuse calls that read one value in the recorded run, but need not in every run."""
    first, found = None, ""
    for call, part in calls:
        value = _input(call)
        if any(isinstance(node, ast.Call | ast.IfExp | ast.BoolOp) for node in ast.walk(value)):
            found = f"`{site.recovered.segment(value)}` is computed for each of the calls"
        origin = _origin(site, block, value, call)
        first = first or origin
        if origin != first:
            found = f"`{site.recovered.segment(value)}` is not always what `{first[0]}` is"
        if found:
            raise Refused(_refusal(site, wanted, Reason.INPUTS_DIFFER, found, part))


def _guarded(
    site: Site, block: Sequence[ast.stmt], calls: Sequence[ast.Call]
) -> tuple[ast.Call, list[ast.Call]]:
    """A call that is in no branch, and those in branches that call the value by a name of another origin."""
    held = [call for call in calls if any(site.recovered.statement_of(call) is stmt for stmt in block)]
    lead = min(held or calls, key=site.recovered.offsets)
    first = _origin(site, block, _input(lead), lead)
    others = []
    for call in calls:
        value, branched = _input(call), not any(call is one for one in held)
        named = isinstance(value, ast.Name) and isinstance(_input(lead), ast.Name)
        if branched and named and _origin(site, block, value, call) != first and always(site.recovered, call):
            others.append(call)
    return lead, others


def _guards(site: Site, value: str, calls: Sequence[ast.Call]) -> list[Change]:
    """Where a branch calls with a name of its own, the forward stops unless that is the value computed with."""
    changes: list[Change] = []
    checked: dict[tuple[int, str], ast.stmt] = {}
    for call in sorted(calls, key=site.recovered.offsets):
        stmt, name = site.recovered.statement_of(call), site.recovered.segment(_input(call))
        block = site.recovered.block_of(stmt)
        since = checked.get((id(block), name))
        if since and name not in written(between(block, _index(block, since), stmt), site.recovered.tree.body):
            continue
        checked[id(block), name] = stmt
        told = f"`{name}` is not `{value}`, as it was when their projections were merged"
        changes.append(Change("before", stmt, f'if {name} is not {value}:\n    raise NotImplementedError("{told}")'))
    return changes


def _index(block: Sequence[ast.stmt], stmt: ast.stmt) -> int:
    return next(i for i, one in enumerate(block) if one is stmt)


def _origin(site: Site, block: Sequence[ast.stmt], value: ast.expr, call: ast.Call) -> tuple[str, int]:
    """What names the value, looked through plain renamings, and which statement of ``block`` bound that name."""
    at = next((i for i, stmt in enumerate(block) if _holds(stmt, site.recovered.statement_of(call))), len(block))
    if not isinstance(value, ast.Name):
        return ast.unparse(value), -1
    name = value.id
    while (index := next((i for i in range(at - 1, -1, -1) if name in bound([block[i]])), -1)) >= 0:
        stmt = block[index]
        match stmt:
            case ast.Assign(targets=[ast.Name()], value=ast.Name(id=other)):
                name, at = other, index
            case _:
                break
    return name, index


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
    child = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    outer = site.recovered.parent_of(call)
    while isinstance(outer, ast.expr):
        match outer:
            case ast.IfExp(test=ast.Compare(left=ast.Attribute(attr=attr) as mention)) if attr == child:
                if _existence(outer.test, mention) is not None:
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
