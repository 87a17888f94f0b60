"""Attention written out in a row of statements, taken apart: what it reads, its scale, where it begins and ends."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from hfspeed.lint.chain import FromProduct, FromSoftmax, OtherForm, only_sizes, target
from hfspeed.lint.classes import last_name
from hfspeed.lint.nodes import walk

PRODUCTS = frozenset({"matmul"})
KERNEL = "scaled_dot_product_attention"
LAST_TWO = ({-1, -2}, {2, 3})


@dataclass(frozen=True)
class Eager:
    """One attention in a function.

    Attributes:
        statements: what computes it, repeats of keys and values included.
        brought: what has to run before them, as it also does elsewhere: the sizes that they read.
        product: the expression of the result, in the last of them.
        query, key, value: the names that it reads.
        mask: the name of what is added to the scores.
        weights: the name of the weights.
        scale: what query times key is multiplied by, as an expression.
        dropout: with what probability weights are left out in training, as an expression.
    """

    statements: tuple[ast.stmt, ...]
    brought: tuple[ast.stmt, ...]
    product: ast.expr
    query: str
    key: str
    value: str
    mask: str | None
    weights: str | None
    scale: str
    dropout: str | None

    @property
    def moved(self) -> tuple[ast.AST, ...]:
        """What becomes another method's: all statements, and of the last one the result alone."""
        return (*self.statements[:-1], self.product)


def eager_attention(function: ast.FunctionDef, call: ast.Call) -> Eager | None:
    """The attention in ``function`` whose softmax or kernel is ``call``, if it is one row of known steps."""
    for block in _blocks(function):
        at = next((index for index, statement in enumerate(block) if _holds(statement, call)), None)
        if at is None or isinstance(block[at], ast.If | ast.For | ast.While | ast.With | ast.Try):
            continue
        try:
            found = _kernel(block[at], call) if last_name(call.func) == KERNEL else _written(block, at, call)
            return found if _closed(function, found) else None
        except OtherForm:
            return None
    return None


def _written(block: list[ast.stmt], at: int, softmax: ast.Call) -> Eager:
    """Two products with a softmax between them."""
    first, scores = _before(block, at)
    query, key, around = _operands(scores)
    chain = FromProduct(factors=list(around))
    chain.product = scores
    chain.factor(_reaching(block[first], scores, softmax))
    if first != at:
        chain.names.add(target(block[first]))
        for statement in block[first + 1 : at]:
            chain.follow(statement)
        chain.factor(_given(softmax))
    after = FromSoftmax()
    after.softmax = softmax
    last, product, weights = _after(block, at, after)
    value = _sides(product)[1]
    if not isinstance(value, ast.Name):
        raise OtherForm
    while first and _repeats(block[first - 1], {key, value.id}):
        first -= 1
    statements = tuple(one for one in block[first : last + 1] if not _only_raises(one))
    names = {node.id for one in statements for node in walk(one) if isinstance(node, ast.Name)}
    masks = [name for name in sorted(names) if "mask" in name and _free(statements, name)]
    mask = masks[0] if len(masks) == 1 else None
    made: set[str | None] = {n.id for one in statements for n in walk(one) if isinstance(n, ast.Name) and _stored(n)}
    if any(_unlike_mask(one, made | {mask}) for one in chain.added):
        raise OtherForm
    brought = tuple(one for one in block[:first] if only_sizes(one, {query, key, value.id}))
    return Eager(
        statements, brought, product, query, key, value.id, mask, weights, _scale(chain.factors), after.dropout
    )


def _kernel(statement: ast.stmt, call: ast.Call) -> Eager:
    """PyTorch's own function, called by its name."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale")
    given = dict(zip(names, call.args, strict=False)) | {one.arg: one.value for one in call.keywords if one.arg}
    heads = [given.get(name) for name in names[:3]]
    plain = [one.id for one in heads if isinstance(one, ast.Name)]
    mask = given.get("attn_mask")
    if len(plain) != 3 or len(given) != len(call.args) + len(call.keywords):
        raise OtherForm
    scale = ast.unparse(given["scale"]) if "scale" in given else f"{plain[0]}.shape[-1] ** -0.5"
    masked = mask.id if isinstance(mask, ast.Name) else None
    return Eager((statement,), (), call, plain[0], plain[1], plain[2], masked, None, scale, None)


def _before(block: list[ast.stmt], at: int) -> tuple[int, ast.expr]:
    """The statement with the product of query and key, the nearest one going up, and the product."""
    for index in range(at, -1, -1):
        for node in walk(block[index]):
            if isinstance(node, ast.expr) and _is_product(node) and _transposed(_sides(node)[1]) is not None:
                return index, node
    raise OtherForm


def _after(block: list[ast.stmt], at: int, chain: FromSoftmax) -> tuple[int, ast.expr, str | None]:
    """The statement with the product that reads the weights, the product, and the weights' name."""
    for index in range(at, len(block)):
        for node in walk(block[index]):
            if isinstance(node, ast.expr) and _is_product(node) and chain.inside(_sides(node)[0]):
                weights = _sides(node)[0]
                chain.factor(weights)
                return index, node, weights.id if isinstance(weights, ast.Name) else None
        if index == at:
            statement = block[at]
            if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
                raise OtherForm
            chain.factor(statement.value)
            chain.names.add(target(statement))
        else:
            chain.follow(block[index])
    raise OtherForm


def _operands(product: ast.expr) -> tuple[str, str, list[tuple[str, ast.expr]]]:
    """The names of query and key, and what either is multiplied by on the spot."""
    left, right = _sides(product)
    transposed = _transposed(right)
    factors: list[tuple[str, ast.expr]] = []
    names = []
    for side in (left, transposed):
        if isinstance(side, ast.BinOp) and isinstance(side.op, ast.Mult | ast.Div):
            factors.append(("*" if isinstance(side.op, ast.Mult) else "/", side.right))
            side = side.left  # noqa: PLW2901
        if not isinstance(side, ast.Name):
            raise OtherForm
        names.append(side.id)
    return names[0], names[1], factors


def _transposed(node: ast.expr) -> ast.expr | None:
    """``key`` of ``key.transpose(-1, -2)`` or ``key.mT``."""
    if isinstance(node, ast.Attribute) and node.attr == "mT":
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "transpose":
        given = [ast.literal_eval(one) if _number(one) else None for one in node.args]
        return node.func.value if set(given) in LAST_TWO else None
    return None


def _sides(product: ast.expr) -> tuple[ast.expr, ast.expr]:
    if isinstance(product, ast.BinOp):
        return product.left, product.right
    assert isinstance(product, ast.Call)
    return product.args[0], product.args[1]


def _is_product(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    plain = isinstance(node, ast.Call) and len(node.args) == 2 and not node.keywords
    return plain and isinstance(node, ast.Call) and last_name(node.func) in PRODUCTS


def _blocks(function: ast.FunctionDef) -> Iterator[list[ast.stmt]]:
    """Every list of statements in ``function``."""
    for node in walk(function):
        for name in ("body", "orelse"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block


def _holds(statement: ast.stmt, call: ast.Call) -> bool:
    return any(node is call for node in walk(statement))


def _reaching(statement: ast.stmt, product: ast.expr, softmax: ast.Call) -> ast.expr:
    """The expression from ``product`` outwards: what the softmax is given, or what the statement assigns."""
    given = _given(softmax)
    if any(node is product for node in walk(given)):
        return given
    value = getattr(statement, "value", None)
    if not isinstance(value, ast.expr):
        raise OtherForm
    return value


def _given(softmax: ast.Call) -> ast.expr:
    """What a softmax is taken of."""
    named = [one.value for one in softmax.keywords if one.arg == "input"]
    plain = isinstance(softmax.func, ast.Attribute) and last_name(softmax.func.value) not in (
        "F",
        "functional",
        "torch",
        "self",
    )
    if named or (softmax.args and not plain):
        return (named or softmax.args)[0]
    if plain and isinstance(softmax.func, ast.Attribute):
        return softmax.func.value
    raise OtherForm


def _repeats(statement: ast.stmt, heads: set[str]) -> bool:
    """``key = repeat_kv(key, n)``."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return False
    read = {node.id for node in walk(statement.value) if isinstance(node, ast.Name)}
    named = "repeat" in last_name(statement.value.func)
    one = statement.targets[0]
    return named and isinstance(one, ast.Name) and one.id in heads and one.id in read


def _only_raises(statement: ast.stmt) -> bool:
    """A check of shapes."""
    return isinstance(statement, ast.If) and all(
        isinstance(one, ast.Raise) for one in statement.body + statement.orelse
    )


def _scale(factors: list[tuple[str, ast.expr]]) -> str:
    """The product of all factors."""
    told = ""
    for sign, factor in factors:
        text = ast.unparse(factor)
        text = text if isinstance(factor, ast.Name | ast.Attribute | ast.Call | ast.Constant) else f"({text})"
        told = text if not told and sign == "*" else f"{told or '1.0'} {sign} {text}"
    return told or "1.0"


def _number(node: ast.expr) -> bool:
    value = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(value, ast.Constant) and isinstance(value.value, int)


def _stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _unlike_mask(added: ast.expr, known: set[str | None]) -> bool:
    """Whether something else than the mask is added to the scores, such as a table of biases."""
    return any(isinstance(node, ast.Name) and node.id not in known for node in walk(added))


def _free(statements: tuple[ast.AST, ...], name: str) -> bool:
    """Whether ``name`` is read before any of the statements assigns it."""
    for statement in statements:
        named = [node for node in walk(statement) if isinstance(node, ast.Name) and node.id == name]
        if any(isinstance(node.ctx, ast.Load) for node in named):
            return True
        if named:
            return False
    return False


def _closed(function: ast.FunctionDef, found: Eager) -> bool:
    """Whether the statements read nothing but heads, mask and ``self``, and leave nothing behind but their result."""
    arguments = function.args
    local = {one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    local |= {node.id for node in walk(function) if isinstance(node, ast.Name) and _stored(node)}
    inner = [node for one in found.moved for node in walk(one)]
    names = {node.id for node in inner if isinstance(node, ast.Name)}
    known = {found.query, found.key, found.value, found.mask, "self"}
    known |= {node.id for one in found.brought for node in walk(one) if isinstance(node, ast.Name) and _stored(node)}
    if any(name not in known and name in local and _free(found.moved, name) for name in names):
        return False
    written = {node.id for node in inner if isinstance(node, ast.Name) and _stored(node)}
    last = found.statements[-1]
    result = {node.id for node in walk(last) if isinstance(node, ast.Name) and _stored(node)}
    scale = {node.id for node in ast.walk(ast.parse(found.scale)) if isinstance(node, ast.Name)}
    later = [node for node in walk(function) if getattr(node, "lineno", 0) > (last.end_lineno or 0)]
    read = {node.id for node in later if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    taken = {node.value.id for node in later if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)}
    return not written & scale and not read & (written - result - {found.weights}) and (found.weights not in taken)
