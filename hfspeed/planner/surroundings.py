"""Names that lead to the process that runs some code: its environment, its clock, its dice, its callers."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

CLOCK: Final = "time time_ns perf_counter perf_counter_ns monotonic monotonic_ns process_time localtime gmtime ctime"
PROCESS: Final[Mapping[str, str]] = {
    "os": "environ environb getenv getenvb getpid getppid uname getcwd getlogin cpu_count",
    "sys": "modules argv _getframe executable",
    "time": f"{CLOCK} strftime",
    "datetime.datetime": "now utcnow today",
    "datetime.date": "today",
    "socket": "gethostname getfqdn",
    "platform": "node uname",
    "getpass": "getuser",
    "uuid": "uuid1 uuid4 getnode",
    "random": "random randint randrange uniform choice choices sample shuffle gauss getrandbits",
    "numpy.random": "rand randn random randint uniform normal choice",
    "inspect": "stack currentframe",
    "traceback": "extract_stack format_stack",
    "threading": "current_thread get_ident active_count",
    "multiprocessing": "current_process parent_process",
    "torch.distributed": "is_initialized get_rank get_world_size get_backend is_torchelastic_launched",
}
"""By module or class, the names whose values are the process's own."""
WORDS: Final = frozenset(name for names in PROCESS.values() for name in names.split())


class Names:
    """The table, with the objects that the names stand for now."""

    def __init__(self) -> None:
        self.owners: dict[int, frozenset[str]] = {}
        self.values: set[int] = set()
        for path, names in PROCESS.items():
            owner = _owner(path)
            if owner is not None:
                self.owners[id(owner)] = frozenset(names.split())
                self.values |= {id(vars(owner)[name]) for name in names.split() if name in vars(owner)}

    def leads(self, value: Any, first: str, rest: Iterable[str]) -> str | None:
        """The full name of what is the process's on the way from ``value`` along attributes; ``None`` if nothing is."""
        said = first
        if id(value) in self.values:
            return said
        for name in rest:
            said = f"{said}.{name}"
            if name in self.owners.get(id(value), ()):
                return said
            value = getattr(value, name, None) if isinstance(value, ModuleType) else None
            if id(value) in self.values:
                return said
        return None


def _owner(path: str) -> Any:
    module, _, cls = path.partition(".") if path.startswith("datetime") else (path, "", "")
    owner = sys.modules.get(module)
    return getattr(owner, cls) if owner is not None and cls else owner


@lru_cache(maxsize=256)
def made_of_it(file: str, module: str) -> frozenset[str]:
    """Names that a file, or a class in it, gave a value of the process's, or in a branch on one, when it was imported.

    Whether a package is there is no matter of the process.

    Args:
        file: the path.
        module: the name that it was imported under.
    """
    known = vars(sys.modules[module]) if module in sys.modules else {}
    try:
        body = ast.parse(Path(file).read_text("utf-8")).body
    except (OSError, SyntaxError, UnicodeDecodeError):
        return frozenset()
    found: set[str] = set()
    names = Names()
    for statement in _statements(body):
        asked = statement.test if isinstance(statement, ast.If) else getattr(statement, "value", None)
        if asked is not None and _mentions(asked, known, found, names):
            found |= set(_binds(statement))
    return frozenset(found)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Assignments and branches that run when a file is imported."""
    for statement in body:
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.If):
            yield statement
        if isinstance(statement, ast.ClassDef | ast.If | ast.Try):
            yield from _statements(statement.body)


def _mentions(value: ast.AST, known: Mapping[str, Any], found: set[str], names: Names) -> bool:
    """Whether an expression reads something of the process's."""
    for node in ast.walk(value):
        said: list[str] = []
        root: ast.AST = node
        while isinstance(root, ast.Attribute):
            said.append(root.attr)
            root = root.value
        if isinstance(root, ast.Name) and root.id in found:
            return True
        if isinstance(root, ast.Name) and names.leads(known.get(root.id), root.id, reversed(said)) is not None:
            return True
    return False


def _binds(statement: ast.stmt) -> Iterator[str]:
    """Names that a statement gives a value."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
