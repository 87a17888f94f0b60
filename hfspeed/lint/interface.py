"""Writes a call of the attention interface in place of attention by hand, which is kept as what runs by default."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from hfspeed.lint.classes import ClassFacts, last_name
from hfspeed.lint.eager import Eager, eager_attention
from hfspeed.lint.facts import Facts, on_self
from hfspeed.lint.finding import Edit
from hfspeed.lint.nodes import calls_in, walk
from hfspeed.lint.rewrite import inserted
from hfspeed.refusal import Place

OWN = "eager_attention"
INTERFACE = "ALL_ATTENTION_FUNCTIONS"
HOME = "modeling_utils"
WIDTH = 100
NUMBER = re.compile(r"-?[\d.e+-]+|(self\.)?register_buffer\('\w+', torch\.tensor\(-?[\d.e+-]+\).*\)")
MASKS = frozenset({
    "_expand_mask", "_make_causal_mask", "_prepare_4d_causal_attention_mask", "_prepare_decoder_attention_mask",
    "_prepare_4d_causal_attention_mask_for_sdpa", "_prepare_4d_causal_attention_mask_with_cache_position",
    "_update_causal_mask", "finfo", "tril", "triu",
})  # fmt: skip
NAMES = frozenset({"attended", "attention_interface"})


def through_interface(facts: Facts, call: ast.Call) -> Iterator[Edit]:
    """The edits after which the attention around ``call``, its softmax or kernel, is asked of the interface.

    None if it is written in another way than those that are known, if a name is taken, or if masks are not made by the
    functions of transformers.
    """
    cls = next((one for one in facts.classes.values() if call in walk(one.node)), None)
    function = next((one for one in cls.methods.values() if call in walk(one)), None) if cls else None
    if cls is None or function is None or facts.method(cls, OWN) is not None:
        return
    if _makes_masks(facts, cls):
        return
    found = eager_attention(function, call)
    taken = {node.id for node in walk(function) if isinstance(node, ast.Name)}
    config = list(_config(facts, cls))
    if found is None or taken & NAMES or not (config or _knows_config(facts, cls)) or not _measured(facts, cls, found):
        return
    first, last = found.statements[0], found.statements[-1]
    place = facts.span(first)
    end = facts.span(last)
    whole = Place(place.file, place.line, place.column, end.end_line, end.end_column)
    yield Edit(whole, _asking(facts, function, found, " " * (place.column - 1)))
    behind = function.end_lineno or function.lineno
    yield inserted(facts, behind, len(facts.lines[behind - 1]) + 1, _method(facts, function, found))
    yield from config
    yield from _imported(facts)


def _makes_masks(facts: Facts, cls: ClassFacts) -> bool:
    """Whether another class makes masks: the interface would be handed them, and a server has only its own."""
    inside = set(calls_in(cls.node))
    return any(last_name(one.func) in MASKS for one in calls_in(facts.tree) if one not in inside)


def _asking(facts: Facts, function: ast.FunctionDef, found: Eager, white: str) -> str:
    """The statements that take the place of the written ones."""
    last = found.statements[-1]
    later = [node for node in walk(function) if getattr(node, "lineno", 0) > (last.end_lineno or 0)]
    used = any(isinstance(node, ast.Name) and node.id == found.weights for node in later)
    given = [f"scaling={found.scale}"]
    given += [f"dropout={found.dropout} if self.training else 0.0"] if found.dropout else []
    given += [f"**{function.args.kwarg.arg}"] if function.args.kwarg else []
    heads = f"self, {found.query}, {found.key}, {found.value}, {found.mask}"
    told = f"{heads}, {', '.join(given)}"
    if len(white) + len(told) > WIDTH:
        told = f",\n{white}    ".join([heads, *given]) + ","
    return (
        f"attention_interface = {INTERFACE}.get_interface(\n"
        f"{white}    self.config._attn_implementation, type(self).{OWN}\n"
        f"{white})\n"
        f"{white}attended, {found.weights if used else '_'} = attention_interface(\n"
        f"{white}    {told}\n"
        f"{white})\n"
        f"{white}{_with(facts, last, found.product, 'attended.transpose(1, 2)')}"
    )


def _method(facts: Facts, function: ast.FunctionDef, found: Eager) -> str:
    """The attention as it was written, as a method that the interface can call."""
    margin = " " * function.col_offset
    mask = f"{found.mask or 'attention_mask'}=None"
    lines = ["", "", f"{margin}def {OWN}(self, {found.query}, {found.key}, {found.value}, {mask}, **kwargs):"]
    white = f"{margin}    "
    for statement in _needed(found):
        lines += _moved(facts, range(statement.lineno, (statement.end_lineno or 0) + 1), statement, white)
    lines += _moved(facts, _lines(facts, found), found.statements[0], white)
    product = _text(facts, found.product)
    product = f"({product})" if isinstance(found.product, ast.BinOp) else product
    lines.append(f"{white}return {product}.transpose(1, 2), {found.weights}")
    return "\n".join(lines)


def _needed(found: Eager) -> list[ast.stmt]:
    """Of the sizes, those that the statements read."""
    read = {node.id for one in found.moved for node in walk(one) if isinstance(node, ast.Name)}
    return [one for one in found.brought if any(isinstance(n, ast.Name) and n.id in read for n in _targets(one))]


def _targets(statement: ast.stmt) -> list[ast.AST]:
    return [node for one in getattr(statement, "targets", []) for node in walk(one)]


def _measured(facts: Facts, cls: ClassFacts, found: Eager) -> bool:
    """Whether what the statements read off ``self`` is no more than a call of the interface can say.

    That is scale, dropout, plain numbers and a table that is causal and nothing else.
    """
    repeats = [one for part in found.moved for one in calls_in(part) if "repeat" in last_name(one.func)]
    excused = {node for one in repeats for node in walk(one)}
    moved = [node for one in found.moved for node in walk(one) if node not in excused]
    read = {name for node in moved if (name := on_self(node))}
    given = ast.parse(f"({found.scale}, {found.dropout})")
    scale = {name for node in ast.walk(ast.parse(found.scale)) if (name := on_self(node))}
    said = {name for node in ast.walk(given) if (name := on_self(node))}
    for name in (read | scale) - {"training"}:
        made = " ".join(ast.unparse(one) for owner in facts.lineage(cls) for one in owner.assigned.get(name, []))
        if name in scale and ("torch" in made or not made):
            return False  # a number that is kept in a tensor cannot be read when the model is built
        plain = name in said or "Softmax" in made or _number_in(made)
        if not plain and not ("torch.tril(torch.ones(" in made and made.count("tri") == 1):
            return False
    return True


def _number_in(made: str) -> bool:
    return bool(NUMBER.fullmatch(made))


def _lines(facts: Facts, found: Eager) -> Iterator[int]:
    """The lines down to the last statement, with the comments between them, and without checks that were left out."""
    kept = {line for one in found.statements[:-1] for line in range(one.lineno, (one.end_lineno or 0) + 1)}
    for line in range(found.statements[0].lineno, found.statements[-1].lineno):
        written = facts.lines[line - 1].strip()
        if line in kept or not written or written.startswith("#"):
            yield line


def _moved(facts: Facts, lines: Iterable[int], first: ast.stmt, white: str) -> list[str]:
    """Lines at another margin than that of ``first``."""
    old = " " * first.col_offset
    texts = (facts.lines[line - 1] for line in lines)
    return [white + text.removeprefix(old) if text.strip() else text for text in texts]


def _with(facts: Facts, statement: ast.stmt, product: ast.expr, text: str) -> str:
    """The text of ``statement`` with ``text`` for ``product`` in it, parentheses around it gone where they can."""
    whole, inner = facts.span(statement), facts.span(product)
    written = _text(facts, statement)
    before = written[: _offset(facts, whole, inner.line, inner.column)]
    after = written[_offset(facts, whole, inner.end_line or 0, inner.end_column or 0) :]
    if before.endswith("(") and after.startswith(").") and not before[-2:-1].isidentifier():
        before, after = before[:-1], after[1:]
    return f"{before}{text}{after}"


def _offset(facts: Facts, start: Place, line: int, column: int) -> int:
    """How many characters lie between the start of a place and a position."""
    if line == start.line:
        return column - start.column
    between = facts.lines[start.line - 1 : line - 1]
    return sum(len(one) + 1 for one in between) - (start.column - 1) + column - 1


def _text(facts: Facts, node: ast.AST) -> str:
    place = facts.span(node)
    lines = facts.lines[place.line - 1 : place.end_line]
    lines[-1] = lines[-1][: (place.end_column or 1) - 1]
    lines[0] = lines[0][place.column - 1 :]
    return "\n".join(lines)


def _knows_config(facts: Facts, cls: ClassFacts) -> bool:
    return any("config" in one.assigned for one in facts.lineage(cls))


def _config(facts: Facts, cls: ClassFacts) -> Iterator[Edit]:
    """Keep the configuration that ``__init__`` is given, where nobody keeps it yet."""
    init = facts.method(cls, "__init__")
    if _knows_config(facts, cls) or init is None or "config" not in {one.arg for one in init.args.args}:
        return
    for statement in init.body:
        if any(ast.unparse(one.func) == "super().__init__" for one in calls_in(statement)):
            place = facts.span(statement)
            white = " " * (place.column - 1)
            line = place.end_line or place.line
            yield inserted(facts, line, len(facts.lines[line - 1]) + 1, f"\n{white}self.config = config")
            return


def _imported(facts: Facts) -> Iterator[Edit]:
    """Import the interface, from where the model's own base class comes."""
    imports = [node for node in facts.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    if any(alias.asname in (None, INTERFACE) and alias.name == INTERFACE for one in imports for alias in one.names):
        return
    named = [node for node in imports if isinstance(node, ast.ImportFrom)]
    near = next((node for node in named if any(alias.name == "PreTrainedModel" for alias in node.names)), None)
    if near is not None and near.level and (near.module or "").endswith(HOME):
        module = "." * near.level + (near.module or "")
    else:
        module = f"transformers.{HOME}"
    after = near or (imports[-1] if imports else None)
    line = f"from {module} import {INTERFACE}"
    if after is not None:
        end = after.end_lineno or after.lineno
        yield inserted(facts, end, len(facts.lines[end - 1]) + 1, f"\n{line}")
    elif not facts.tree.body or not isinstance(facts.tree.body[0], ast.Expr):
        yield inserted(facts, 1, 1, f"{line}\n")
