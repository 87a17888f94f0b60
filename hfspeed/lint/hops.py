"""The way of keywords from a causal language model down to the attention interface, hop by hop."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from hfspeed.lint.classes import ClassFacts, last_name
from hfspeed.lint.facts import INTERFACE, Facts, dispatches, on_self
from hfspeed.lint.nodes import calls_in, walk

CROSS = frozenset({"cross_attention_states", "encoder_hidden_states", "encoder_outputs", "key_value_states"})
"""Arguments by which attention looks at another sequence."""


@dataclass(frozen=True)
class Hop:
    """One hop that drops keywords: where it is, what happens there, and what to write."""

    node: ast.AST
    lost: str
    help: str


def lost_hops(facts: Facts) -> Iterator[Hop]:
    """Every hop on the way from a causal language model to the interface that drops keywords, each once."""
    seen: set[ClassFacts] = set()
    waiting = list(facts.causal)
    while waiting:
        cls = waiting.pop(0)
        if cls in seen:
            continue
        seen.add(cls)
        if _kept(facts.method(cls, "forward")):
            continue
        below = _below(facts, cls)
        waiting += [child for children in below.values() for child in children]
        yield from _dropped(facts, cls, below)


def forwards(facts: Facts) -> Iterator[ast.FunctionDef]:
    """Every method of every class, and every function, that keywords may pass through."""
    for cls in facts.classes.values():
        yield from cls.methods.values()
    yield from facts.functions.values()


def parts(facts: Facts) -> set[ClassFacts]:
    """The classes that a causal language model of this file is made of, as far as their making can be read."""
    found: set[ClassFacts] = set()
    waiting = list(facts.causal)
    while waiting:
        cls = waiting.pop()
        if cls not in found:
            found.add(cls)
            made = [value for one in facts.lineage(cls) for values in one.assigned.values() for value in values]
            waiting += [child for value in made for child in _made(facts, value)]
    return found


def _dropped(facts: Facts, cls: ClassFacts, below: dict[str, list[ClassFacts]]) -> Iterator[Hop]:
    forward = facts.method(cls, "forward")
    asking = [function for function in facts.reached(cls) if dispatches(function)]
    if forward is None or forward not in cls.methods.values() or not (asking or below):
        return
    if forward.args.kwarg is None:
        yield Hop(forward, f"`{cls.name}.forward` takes no `**kwargs`", "take **kwargs and hand them on")
        return
    if forward not in asking:
        asking = []  # the way through further methods is told where they are written, not guessed
    for function in asking:
        for call in _asks(function):
            if not _hands_on(call):
                yield Hop(call, f"`{cls.name}` calls the interface without `**kwargs`", "add **kwargs to the call")
    for call, name in _calls_of_children(forward):
        elsewhere = any((keyword.arg or "") in CROSS for keyword in call.keywords)
        if name in below and not elsewhere and not _hands_on(call):
            lost = f"`{cls.name}` calls `{name}` without `**kwargs`"
            yield Hop(call, lost, f"add **{forward.args.kwarg.arg} to the call")


def _kept(forward: ast.FunctionDef | None) -> bool:
    """Whether further keywords are put into something that is handed on, as one value: ``Step(more=kwargs)``."""
    name = forward.args.kwarg.arg if forward is not None and forward.args.kwarg is not None else None
    given = [
        *(one for call in calls_in(forward) for one in [*call.args, *(key.value for key in call.keywords if key.arg)]),
        *(node.value for node in walk(forward) if isinstance(node, ast.Assign | ast.AnnAssign)),
    ] if forward is not None and name else []  # fmt: skip
    return any(isinstance(one, ast.Name) and one.id == name for one in given)


def _below(facts: Facts, cls: ClassFacts) -> dict[str, list[ClassFacts]]:
    """The children of ``cls`` that lead to the interface, and the classes they may be of."""
    found: dict[str, list[ClassFacts]] = {}
    for one in (one for one in facts.lineage(cls) if not _kept(one.methods.get("forward"))):
        for name, values in one.assigned.items():
            classes = [child for value in values for child in _made(facts, value) if child is not cls]
            leading = [child for child in classes if _leads(facts, child, cls)]
            if leading:
                found.setdefault(name, leading)
    return found


def _leads(facts: Facts, cls: ClassFacts, above: ClassFacts) -> bool:
    """Whether keywords given to ``cls`` can get to the interface, by a way that does not come by ``above`` again."""
    seen, waiting = {above}, [cls]
    while waiting:
        one = waiting.pop()
        if one in seen or facts.method(one, "forward") is None:
            continue
        seen.add(one)
        if any(dispatches(function) for function in facts.reached(one)):
            if facts.decodes(one):
                return True
            continue
        values = [value for part in facts.lineage(one) for values in part.assigned.values() for value in values]
        waiting += [child for value in values for child in _made(facts, value)]
    return False


def _made(facts: Facts, value: ast.expr) -> Iterator[ClassFacts]:
    """The classes of this file that ``value`` makes an instance of, also through a table of classes."""
    for call in calls_in(value):
        name = last_name(call.func)
        if name in facts.classes:
            yield facts.classes[name]
        elif isinstance(call.func, ast.Subscript):
            for entry in walk(_tables(facts).get(name, ast.Constant(None))):
                if isinstance(entry, ast.Name) and entry.id in facts.classes:
                    yield facts.classes[entry.id]


def _tables(facts: Facts) -> dict[str, ast.expr]:
    return {
        target.id: node.value
        for node in facts.tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value, ast.Dict)
    }


def _asks(function: ast.FunctionDef) -> Iterator[ast.Call]:
    """The calls of what was looked up in the interface."""
    names = set()
    for node in walk(function):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        if any(last_name(part) in INTERFACE for part in walk(node.value)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    for call in calls_in(function):
        if isinstance(call.func, ast.Name) and call.func.id in names:
            yield call


def _calls_of_children(function: ast.FunctionDef) -> Iterator[tuple[ast.Call, str]]:
    """Every call of a child and the child's name: ``self.x()``, ``self.x[i]()``, ``for layer in self.x: layer()``."""
    elements: dict[str, str] = {}
    for node in walk(function):
        if isinstance(node, ast.For | ast.comprehension):
            target, source = node.target, node.iter
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
            target, source = node.targets[0], node.value
        else:
            continue
        held = [name for part in walk(source) if (name := on_self(part))]
        if held:
            elements |= {part.id: held[0] for part in walk(target) if isinstance(part, ast.Name)}
    for call in calls_in(function):
        called = call.func.value if isinstance(call.func, ast.Subscript) else call.func
        name = on_self(called) or (elements.get(called.id) if isinstance(called, ast.Name) else None)
        if name:
            yield call, name


def _hands_on(call: ast.Call) -> bool:
    return any(keyword.arg is None for keyword in call.keywords)
