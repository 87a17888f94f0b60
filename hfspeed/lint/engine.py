"""Runs the rules over files by reading them; nothing is imported or executed."""

from __future__ import annotations

import ast
import tokenize
import warnings
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from hfspeed.errors import UsageError
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Finding
from hfspeed.lint.ignores import ignores
from hfspeed.lint.rule import Rule
from hfspeed.lint.rules import find, rules
from hfspeed.refusal import Place

SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})


def files_in(path: Path) -> list[Path]:
    """The Python files that ``path`` means: itself, or all below it but hidden and installed ones, sorted."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UsageError(f"{path} does not exist; name a file, a folder or a model")
    return sorted(_walk(path))


def read(path: Path) -> Facts | Finding:
    """The facts of one file, or the finding that it cannot be read."""
    try:
        with tokenize.open(path) as stream:
            text = stream.read()
    except (SyntaxError, UnicodeDecodeError, OSError) as error:
        return _unreadable(path, str(error))
    return parse(text, path)


def parse(text: str, path: Path) -> Facts | Finding:
    """The facts of ``text``, as if it stood at ``path``, or the finding that it does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python thinks of a string's escapes is not ours to tell
            tree = ast.parse(text, str(path))
    except SyntaxError as error:
        last = text.count("\n") + 1
        return _unreadable(path, error.msg, min(error.lineno or 1, last), max(error.offset or 1, 1))
    except (ValueError, RecursionError, MemoryError) as error:
        return _unreadable(path, str(error) or "it is nested too deeply")
    return Facts(path, text, tree)


def check(facts: Facts | Finding, chosen: Iterable[Rule] | None = None) -> list[Finding]:
    """What the rules find in one file, in order, without what its author has silenced."""
    if isinstance(facts, Finding):
        return [facts]
    silenced = ignores(facts.text)
    try:
        found = {finding for rule in (rules() if chosen is None else chosen) for finding in rule.check(facts)}
    except RecursionError:
        return [_unreadable(facts.path, "an expression in it is nested too deeply to follow")]
    return sorted((finding for finding in found if not silenced.silence(finding)), key=lambda finding: finding.order)


def choose(select: Collection[str] = (), ignore: Collection[str] = ()) -> list[Rule]:
    """The rules that ``select`` names and ``ignore`` does not: by code, by the beginning of a code, or by name.

    Raises:
        UsageError: a name fits no rule.
    """
    for wanted in [*select, *ignore]:
        if not any(_fits(rule, wanted) for rule in rules()):
            raise UsageError(f"no rule is called {wanted!r}; see hfspeed rule --all")
    chosen = [rule for rule in rules() if not select or any(_fits(rule, wanted) for wanted in select)]
    return [rule for rule in chosen if not any(_fits(rule, unwanted) for unwanted in ignore)]


def _unreadable(path: Path, error: str, line: int = 1, column: int = 1) -> Finding:
    rule = find("HFS001")
    assert rule is not None
    return rule.told(Place(str(path), line, column), error=error)


def _fits(rule: Rule, wanted: str) -> bool:
    return wanted.upper() == "ALL" or rule.code.startswith(wanted.upper()) or rule.name == wanted.lower()


def _walk(folder: Path) -> Iterator[Path]:
    for entry in folder.iterdir():
        if entry.name.startswith(".") or entry.name in SKIPPED:
            continue
        if entry.is_dir() and not entry.is_symlink() and not (entry / "pyvenv.cfg").exists():
            yield from _walk(entry)
        elif entry.suffix == ".py" and entry.is_file():
            yield entry
