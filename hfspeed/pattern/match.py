"""Matching a term against a recorded graph; the names bound are the names in check, rewrite and plan."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from torch import fx, nn

from hfspeed.graph.flow import origins
from hfspeed.graph.linear import Shape, shape_of
from hfspeed.graph.nodes import (
    SPLITS,
    activation,
    as_function,
    function_name,
    is_attention,
    is_linear,
    is_part,
    module_of,
    peeled,
    value_of,
    width,
)
from hfspeed.pattern.terms import Act, Attend, From, Linear, Piece, Product, Readers, Term, Value
from hfspeed.refusal import Reason, Refusal, Refused

if TYPE_CHECKING:
    from hfspeed.pattern.site import Site

Names = dict[str, fx.Node]


def bindings(term: Term, node: fx.Node, names: Names) -> Iterator[Names]:
    """Every way in which ``node`` is ``term``, as names bound to nodes."""
    match term:
        case Value(name):
            yield names | {name: node}
        case Linear(name, of):
            at = peeled(node)
            if is_linear(at) and len(at.all_input_nodes) == 1:
                yield from bindings(of, at.all_input_nodes[0], names | {name: at})
        case Act(name, of):
            yield from _act(name, of, peeled(node), names)
        case Piece(name, of):
            yield from _piece(name, of, peeled(node), names)
        case Product(left, right):
            yield from _product(left, right, peeled(node), names)
        case From(name, of):
            yield from _from(name, of, node, names)
        case Readers(name, of):
            found = tuple(user for user in node.users if is_linear(user) and not user.meta.get("claimed"))
            if len(found) > 1:
                yield from bindings(of, node, names | {f"{name}_{i}": n for i, n in enumerate(found)})
        case Attend(name, query, key, value):
            if is_attention(node):
                yield from _attend((query, key, value), node, names | {name: node})


def _from(name: str, of: Term, node: fx.Node, names: Names) -> Iterator[Names]:
    found = origins(node)
    if len(found) == 1 and len(found[0].all_input_nodes) == 1 and names.get(name) in {None, found[0]}:
        yield from bindings(of, found[0].all_input_nodes[0], names | {name: found[0]})


def _act(name: str, of: Term, node: fx.Node, names: Names) -> Iterator[Names]:
    if as_function(node) is not None and not is_part(node):
        yield from bindings(of, node.all_input_nodes[0], names | {name: node})


def _piece(name: str, of: Term, node: fx.Node, names: Names) -> Iterator[Names]:
    cut = node.args[0] if is_part(node) else None
    found = origins(node) if function_name(node) == "__getitem__" else ()
    if len(found) == 1 and 2 * width(node) == width(found[0]):
        yield from bindings(of, found[0], names | {name: node})
    if not isinstance(cut, fx.Node) or function_name(cut) not in SPLITS:
        return
    pieces, whole = value_of(cut), cut.args[0]
    if len(pieces) != 2 or not isinstance(whole, fx.Node):
        return
    if all(2 * piece.shape[-1] == width(whole) for piece in pieces):
        yield from bindings(of, whole, names | {name: node})


def _product(left: Term, right: Term, node: fx.Node, names: Names) -> Iterator[Names]:
    factors = [a for a in (*node.args, *node.kwargs.values()) if isinstance(a, fx.Node)]
    if function_name(node) not in {"mul", "multiply"} or len(factors) != 2:
        return
    for one, other in (factors, factors[::-1]):
        for partial in bindings(left, one, names):
            yield from bindings(right, other, partial)


def _attend(terms: tuple[Term, Term, Term], node: fx.Node, names: Names) -> Iterator[Names]:
    query, key, value = node.args[1:4]
    if not all(isinstance(a, fx.Node) for a in (query, key, value)):
        return
    for first in bindings(terms[0], query, names):  # type: ignore[arg-type]
        for second in bindings(terms[1], key, first):  # type: ignore[arg-type]
            yield from bindings(terms[2], value, second)  # type: ignore[arg-type]


class Bound:
    """One bound name: its node, and what one asks of it."""

    def __init__(self, role: str, node: fx.Node, site: Site) -> None:
        self.role = role
        self.node = node
        self.site = site

    @property
    def module(self) -> nn.Module:
        """The child called."""
        found = module_of(self.node)
        assert found is not None, f"{self.role} is no child"
        return found

    @property
    def shape(self) -> Shape:
        """The shape of the child called, a plain linear."""
        shape = shape_of(self.module)
        assert shape is not None, f"{self.role} is no linear"
        return shape

    @property
    def path(self) -> str:
        """Dotted name in the model."""
        return str(self.node.target)

    @property
    def name(self) -> str:
        """Dotted name on the module that calls it."""
        return self.path[len(self.site.path) + 1 :] if self.site.path else self.path

    @property
    def in_features(self) -> int:
        """Width read."""
        return self.shape.inputs

    @property
    def out_features(self) -> int:
        """Width given."""
        return self.shape.outputs

    @property
    def bias(self) -> bool:
        """Whether it adds a bias."""
        return self.shape.bias

    @property
    def index(self) -> object:
        """Which piece of a cut it is, from 0."""
        return self.node.args[1]

    @property
    def kind(self) -> str | None:
        """Which activation it is."""
        return activation(self.node)


class Match:
    """One match of a fusion's pattern at one site. ``m.gate`` is what the pattern called ``gate``."""

    def __init__(self, wanted: str, site: Site, root: fx.Node, names: Names) -> None:
        self.wanted = wanted
        self.site = site
        self.root = root
        self.bound: Mapping[str, Bound] = {n: Bound(n, node, site) for n, node in names.items()}

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["bound"][name]
        except KeyError:
            raise AttributeError(f"the pattern of {self.wanted} binds no {name}") from None

    def refuse(self, reason: Reason, found: str, at: Bound | None = None, help: str = "") -> NoReturn:
        """Say no, with the line of ``at`` (or of the root)."""
        place = self.site.place(at.node if at else self.root)
        raise Refused(
            Refusal(self.wanted, reason, found, self.site.path, place, len(self.bound), help)
        )

    def same(self, one: Bound, other: Bound, reason: Reason, found: str, at: Bound) -> None:
        """Both names are one and the same value, not written to in between."""
        if one.node is not other.node:
            self.refuse(reason, found, at)

    def equal(self, one: object, other: object, reason: Reason, found: str, at: Bound | None = None) -> None:
        """Both facts are equal."""
        if one != other:
            self.refuse(reason, found, at)

    def among(self, value: object, known: Collection[object], reason: Reason, found: str, at: Bound) -> None:
        """The fact is one of ``known``."""
        if value not in known:
            self.refuse(reason, found, at)
