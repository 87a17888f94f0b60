"""The imports of an emitted module, and how each forward spells the names it cannot simply import."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from keyword import iskeyword
from types import ModuleType

from hfspeed.emit.names import at_definition, identifiers
from hfspeed.emit.origin import Origin, reach
from hfspeed.refusal import Reason, Refusal, Refused
from hfspeed.source import Recovered

_WIDTH = 100


class Imports:
    """Collects what the forwards of one module need; the first that needs a name gets it plainly."""

    def __init__(self, origins: Sequence[Origin]) -> None:
        self._classes = {origin.forward.name for origin in origins}
        texts = frozenset[str]().union(*(identifiers(origin.forward.text) for origin in origins))
        self._prefix = "author"
        while any(name.startswith(self._prefix) for name in texts | self._classes):
            self._prefix += "_"
        self._aliases: dict[str, str] = {}
        self._bound: dict[str, object] = {}
        self._plain: dict[str, set[str]] = {}
        self._modules: set[str] = set()

    def alias(self, module: str) -> str:
        """The local name of an author's module."""
        number = len(self._aliases) + 1
        suffix = "" if number == 1 else f"_{number}"
        return self._aliases.setdefault(module, self._prefix + suffix)

    def named(self, cls: type) -> str:
        """How to write an author's class."""
        return f"{self.alias(cls.__module__)}.{cls.__qualname__}"

    def spelled(self, origin: Origin, recovered: Recovered) -> dict[str, str]:
        """Import what ``origin`` uses; names that must be written otherwise, with the way to write them.

        Raises:
            Refused: a decorator or default value uses a name that its module does not have.
        """
        needed = at_definition(recovered.tree)
        other: dict[str, str] = {}
        for name in sorted(origin.uses):
            if name not in origin.names:
                if name in needed:
                    other[name] = self._of_class(origin, name)
                continue  # read in a branch that cannot run, or in an annotation: as broken as before
            if not self._imported(origin, name):
                other[name] = f"{self.alias(origin.module)}.{name}"
        return other

    def _of_class(self, origin: Origin, name: str) -> str:
        if reach(sys.modules[origin.owner.__module__], f"{origin.owner.__qualname__}.{name}") is None:
            found = f"`{name}` is no name of `{origin.module}`, so it cannot be imported"
            raise Refused(Refusal("emit", Reason.CLOSURE, found, origin.forward.base))
        return f"{self.named(origin.owner)}.{name}"

    def _imported(self, origin: Origin, name: str) -> bool:
        value = origin.names[name]
        if name in self._classes or name == "annotations" or name in origin.rebound:
            return False
        if not _is_spelled(origin.module):
            return False
        if name in self._bound:
            return self._bound[name] is value
        self._bound[name] = value
        line = _module_import(name, value)
        if line:
            self._modules.add(line)
        else:
            self._plain.setdefault(origin.module, set()).add(name)
        return True

    def text(self) -> str:
        """The import lines."""
        lines = sorted(line for line in self._modules if line.startswith("import "))
        lines += sorted(line for line in self._modules if line.startswith("from "))
        lines += [_aliased(module, alias) for module, alias in self._aliases.items() if _is_spelled(module)]
        lines += [_from(module, names) for module, names in sorted(self._plain.items())]
        if hidden := {module: alias for module, alias in self._aliases.items() if not _is_spelled(module)}:
            loader = f"{self._prefix}_module"
            lines += [f"from importlib import import_module as {loader}", ""]
            lines += [f'{alias} = {loader}("{module}")' for module, alias in hidden.items()]
        return "\n".join(lines)


def _module_import(name: str, value: object) -> str | None:
    """How the module ``value`` is imported as ``name``, if it is one that an import finds."""
    if not isinstance(value, ModuleType) or sys.modules.get(value.__name__) is not value:
        return None
    if not _is_spelled(value.__name__):
        return None
    parent, _, last = value.__name__.rpartition(".")
    if value.__name__ == name:
        return f"import {name}"
    if parent and getattr(sys.modules.get(parent), last, None) is not value:
        return None
    if parent:
        return f"from {parent} import {last}" + ("" if last == name else f" as {name}")
    return f"import {value.__name__} as {name}"


def _is_spelled(module: str) -> bool:
    """Whether an import statement can name ``module``; code from the Hub lies in folders named by hashes."""
    return all(part.isidentifier() and not iskeyword(part) for part in module.split("."))


def _aliased(module: str, alias: str) -> str:
    package, _, last = module.rpartition(".")
    return f"from {package} import {last} as {alias}" if package else f"import {module} as {alias}"


def _from(module: str, names: set[str]) -> str:
    joined = ", ".join(sorted(names))
    line = f"from {module} import {joined}"
    if len(line) <= _WIDTH:
        return line
    filled = textwrap.fill(joined + ",", _WIDTH, initial_indent="    ", subsequent_indent="    ")
    return f"from {module} import (\n{filled}\n)"
