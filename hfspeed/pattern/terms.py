"""Pattern terms: a pattern is written as the forward it matches, with the operators of the language."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
    """Something a node can be. ``a * b`` matches either order."""

    def __mul__(self, other: Term) -> Product:
        return Product(self, other)


@dataclass(frozen=True)
class Value(Term):
    """Any value."""

    name: str


@dataclass(frozen=True)
class Linear(Term):
    """A plain linear child called with one value."""

    name: str
    of: Term


@dataclass(frozen=True)
class Act(Term):
    """A function of one value without weights; which one is found by running it."""

    name: str
    of: Term


@dataclass(frozen=True)
class Piece(Term):
    """Half of a value: one of two pieces of a cut, or what a subscript takes of a linear's result."""

    name: str
    of: Term


@dataclass(frozen=True)
class Product(Term):
    """The elementwise product of two terms, in either order."""

    left: Term
    right: Term


@dataclass(frozen=True)
class From(Term):
    """Any value into which exactly one linear child flows, through whatever lies between."""

    name: str
    of: Term


@dataclass(frozen=True)
class Readers(Term):
    """A value that at least two plain linears read which no fusion has taken: ``name_0``, ``name_1``, …"""

    name: str
    of: Term


@dataclass(frozen=True)
class Attend(Term):
    """A call of the attention interface."""

    name: str
    query: Term
    key: Term
    value: Term


class Pattern:
    """The words a fusion writes its pattern in."""

    def value(self, name: str) -> Value:
        """Any value, called ``name`` from here on."""
        return Value(name)

    def linear(self, name: str, of: Term) -> Linear:
        """A plain linear child applied to ``of``."""
        return Linear(name, of)

    def act(self, name: str, of: Term) -> Act:
        """An activation: child, function or method, applied to ``of``."""
        return Act(name, of)

    def piece(self, name: str, of: Term) -> Piece:
        """One half of ``of``; which rows it holds is asked of the match."""
        return Piece(name, of)

    def comes_from(self, name: str, of: Term) -> From:
        """Whatever is made from the linear ``name`` and no other; used twice, it is the same linear."""
        return From(name, of)

    def readers(self, name: str, of: Term) -> Readers:
        """All free linears that read ``of``."""
        return Readers(name, of)

    def attend(self, name: str, query: Term, key: Term, value: Term) -> Attend:
        """The attention interface."""
        return Attend(name, query, key, value)
