"""A packed projection that is cut into roles: the cut goes, and the roles come out side by side, in one order."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import fx

from hfspeed.graph.nodes import is_part
from hfspeed.pattern.edit import Change
from hfspeed.pattern.site import Site
from hfspeed.pattern.steady import steady
from hfspeed.refusal import Reason, Refusal, Refused
from hfspeed.source.branches import apart
from hfspeed.source.effects import bound, written
from hfspeed.source.unread import unread

_PLAIN = (
    ast.Name, ast.Attribute, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List,
    ast.operator, ast.unaryop, ast.expr_context,
)  # fmt: skip


@dataclass(frozen=True)
class Cut:
    """One role of a packed projection.

    Attributes:
        role: a word for it.
        node: the value that is this role's alone.
        form: what is done to the flat rows to get that value; ``{size}`` is the size of one head.
    """

    role: str
    node: fx.Node
    form: str


@dataclass
class _Work:
    """What is found on the way from the cuts back to the packed call."""

    site: Site
    wanted: str
    packed: fx.Node
    name: str
    call: ast.Call
    statements: list[ast.stmt] = field(default_factory=list)

    def refuse(self, reason: Reason, found: str, at: ast.AST | None = None) -> Refused:
        place = self.site.recovered.place(at) if at is not None else self.site.place(self.packed)
        return Refused(Refusal(self.wanted, reason, found, self.site.path, place, 3))


def recut(site: Site, wanted: str, packed: fx.Node, cuts: Sequence[Cut], name: str) -> list[Change]:
    """Changes that take ``cuts``, in this order, from ``self.<name>`` by the sizes that the op promises.

    Raises:
        Refused: the packed call or a cut is not the forward's own, or something else reads what was packed.
    """
    work = _Work(site, wanted, packed, name, site.plain_call(packed, wanted))
    for taken in (f"{name}_sizes", f"{name}_head_sizes"):
        if hasattr(site.call.module, taken):
            raise work.refuse(Reason.USED_ELSEWHERE, f"`{taken}` is a name that the module has already")
    names = site.free_locals([cut.role for cut in cuts])
    replaced = _replaced(work, cuts, names)
    for expression in replaced:
        _follow(work, expression)
    dead = _dead(work, list(replaced))
    first = site.recovered.statement_of(work.call)
    _in_order(work, first, list(replaced))
    me = site.recovered.self_name
    value = site.recovered.segment(work.call.args[0] if work.call.args else work.call.keywords[0].value)
    split = f"{me}.{name}({value}).split({me}.{name}_sizes, dim=-1)"
    rest = [*(Change("delete", stmt) for stmt in dead), *_elsewhere(work)]
    whole = list(replaced.items())
    if len(whole) == 1 and whole[0][1] == f"({', '.join(names)})" and work.call in ast.walk(whole[0][0]):
        return [Change("replace", whole[0][0], split), *rest]
    line = Change("before", first, f"{', '.join(names)} = {split}", tuple(names))
    return [line, *(Change("replace", expression, text) for expression, text in whole), *rest]


def _replaced(work: _Work, cuts: Sequence[Cut], names: Sequence[str]) -> dict[ast.expr, str]:
    """The author's cutting expressions, and what stands there instead: one value, or all pieces of a tuple."""
    pieces: dict[ast.expr, dict[object, str]] = {}
    for cut, name in zip(cuts, names, strict=True):
        expression = work.site.expression(cut.node)
        if not isinstance(expression, ast.expr):
            raise work.refuse(Reason.CALLED_THROUGH_HELPER, f"the cut of {cut.role} is not in the forward itself")
        index = cut.node.args[1] if is_part(cut.node) else None
        size = f"{work.site.recovered.self_name}.{work.name}_head_sizes[{names.index(name)}]"
        pieces.setdefault(expression, {})[index] = name + cut.form.format(size=size)
    found = {}
    for expression, parts in pieces.items():
        if None in parts and len(parts) == 1:
            found[expression] = parts[None]
            continue
        whole = next(cut.node.args[0] for cut in cuts if work.site.expression(cut.node) is expression)
        count = len(whole.meta["value"]) if isinstance(whole, fx.Node) else 0
        if set(parts) != set(range(count)):
            raise work.refuse(Reason.USED_ELSEWHERE, "the cut gives more than is handed to attention", expression)
        found[expression] = f"({', '.join(parts[index] for index in range(count))})"
    return found


def _follow(work: _Work, expression: ast.expr) -> None:
    """Note the assignments between the packed call and ``expression``; everything else on the way is a moving call."""
    node: ast.expr = expression
    recovered = work.site.recovered
    recorded = {id(work.site.expression(one)) for one in work.site.graph.nodes}
    while node is not work.call:
        _alike(work, node, recorded)
        match node:
            case ast.Call(func=ast.Attribute(value=value)) if not _is_module(work, value):
                node = value
            case ast.Call(func=ast.Attribute(), args=[value, *_]) | ast.Call(func=ast.Name(), args=[value, *_]):
                node = value
            case ast.Subscript(value=value):
                node = value
            case ast.Attribute(value=value):
                node = value
            case ast.Name(id=name):
                stmt = _assigned(work, node, recovered.statement_of(node))
                if not any(stmt is one for one in work.statements):
                    work.statements.append(stmt)
                value_ = stmt.value if isinstance(stmt, ast.Assign | ast.AnnAssign) else None
                if value_ is None or not _binds(stmt, name):
                    raise work.refuse(Reason.NOT_A_PLAIN_CALL, f"`{name}` is not assigned plainly", stmt)
                node = value_
            case _:
                shown = recovered.segment(node)
                raise work.refuse(Reason.NOT_A_PLAIN_CALL, f"`{shown}` stands between the projection and its cut", node)


def _alike(work: _Work, node: ast.expr, recorded: set[int]) -> None:
    """Refuse a call of a helper, and sizes or places that another run could choose otherwise."""
    if isinstance(node, ast.Call):
        if id(node) not in recorded:
            shown = work.site.recovered.segment(node.func)
            raise work.refuse(Reason.CALLED_THROUGH_HELPER, f"`{shown}` is not torch's own", node)
        rest = [*node.args, *(keyword.value for keyword in node.keywords)]
        if isinstance(node.func, ast.Attribute) and _is_module(work, node.func.value) and node.args:
            rest = rest[1:]
    else:
        rest = [node.slice] if isinstance(node, ast.Subscript) else []
    for one in rest:
        if not steady(work.site.recovered, one):
            shown = work.site.recovered.segment(one)
            raise work.refuse(Reason.NOT_A_PLAIN_CALL, f"`{shown}` may be something else in another run", one)


def _is_module(work: _Work, node: ast.expr) -> bool:
    """``torch`` or ``F``: a name that the forward does not bind."""
    tree = work.site.recovered.tree
    local = set(bound(tree.body)) | {one.arg for one in ast.walk(tree) if isinstance(one, ast.arg)}
    return isinstance(node, ast.Name) and node.id not in local


def _binds(stmt: ast.stmt, name: str) -> bool:
    """Whether ``stmt`` gives its whole value to ``name``."""
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
    target = stmt.target if isinstance(stmt, ast.AnnAssign) else target
    return isinstance(target, ast.Name) and target.id == name


def _assigned(work: _Work, name: ast.Name, stmt: ast.stmt) -> ast.stmt:
    """The one assignment that ``name`` in ``stmt`` has its value from, in this block or one around it."""
    recovered = work.site.recovered
    while True:
        block = recovered.block_of(stmt)
        index = next(i for i, one in enumerate(block) if one is stmt)
        for earlier in reversed(block[:index]):
            if name.id in set(bound([earlier])):
                return earlier
            if name.id in written([earlier], recovered.tree.body):
                raise work.refuse(Reason.INPUT_WRITTEN, f"`{name.id}` may be written to before it is cut", earlier)
        outer = recovered.parent_of(stmt)
        if not isinstance(outer, ast.If | ast.With):
            raise work.refuse(Reason.DIFFERENT_BLOCKS, f"`{name.id}` does not come from around its cut", name)
        stmt = outer


def _dead(work: _Work, gone: list[ast.expr]) -> list[ast.stmt]:
    """The assignments on the way, none of which may be read any more; then the numbers that only they needed."""
    recovered = work.site.recovered
    for stmt in work.statements:
        others = [one for one in work.statements if one is not stmt]
        if not unread(recovered, stmt, *gone, *others):
            raise work.refuse(Reason.USED_ELSEWHERE, "what is packed is read by more than its cut", stmt)
    dead = list(work.statements)
    grew = True
    while grew:
        lost = {n.id for one in [*gone, *dead] for n in ast.walk(one) if isinstance(n, ast.Name)}
        more = [
            stmt
            for stmt in ast.walk(recovered.tree)
            if isinstance(stmt, ast.Assign) and stmt not in dead and lost & set(bound([stmt]))
            if all(isinstance(n, _PLAIN) for n in ast.walk(stmt.value)) and unread(recovered, stmt, *gone, *dead)
        ]
        dead += more
        grew = bool(more)
    return dead


def _in_order(work: _Work, first: ast.stmt, replaced: list[ast.expr]) -> None:
    """Nothing is called in the statement of the packed call before it: the merged line goes in front of that."""
    inside = [work.call, *replaced, *_made_later(first, work.call)]
    start = work.site.recovered.offsets(work.call)[0]
    for node in ast.walk(first):
        early = isinstance(node, ast.Call | ast.NamedExpr) and work.site.recovered.offsets(node)[1] <= start
        if early and not any(node in ast.walk(one) for one in inside):
            raise work.refuse(Reason.NOT_A_PLAIN_CALL, "something is called before the projection in its line", node)
    if isinstance(first, ast.While | ast.For) or not isinstance(first, ast.Assign | ast.AnnAssign | ast.Return):
        raise work.refuse(Reason.NOT_A_PLAIN_CALL, "the projection is not called in an assignment", first)


def _made_later(first: ast.stmt, call: ast.Call) -> list[ast.expr]:
    """What a comprehension makes of each piece of what is cut: it stands before the call, and runs behind it."""
    kinds = (ast.GeneratorExp, ast.ListComp)
    around = [one for one in ast.walk(first) if isinstance(one, kinds) and call in ast.walk(one.generators[0].iter)]
    return [one.elt for one in around]


def _elsewhere(work: _Work) -> list[Change]:
    """Other calls of the packed child stand in branches that were not taken: there the forward stops, told why."""
    recovered, changes = work.site.recovered, []
    for node in ast.walk(recovered.tree):
        if not isinstance(node, ast.Attribute) or node.attr != work.name or node is work.call.func:
            continue
        if not isinstance(node.value, ast.Name) or node.value.id != recovered.self_name:
            continue
        if not apart(recovered, node, work.call):
            raise work.refuse(Reason.USED_ELSEWHERE, f"`{work.name}` is used other than by its one call", node)
        told = f"`{work.name}` is split by heads here, and this branch was not taken when that was decided"
        changes.append(Change("before", recovered.statement_of(node), f'raise NotImplementedError("{told}")'))
    return changes
