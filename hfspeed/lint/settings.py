"""What can be set about a check, and how settings choose rules."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pathspec import GitIgnoreSpec

from hfspeed.errors import UsageError
from hfspeed.lint.finding import Finding, Fix, Severity
from hfspeed.lint.rule import Rule
from hfspeed.lint.rules import rules

PACKAGES = ("transformers", "vllm")
EXCLUDED = (".*/", "__pycache__/", "node_modules/", "site-packages/", "build/", "dist/")


@dataclass(frozen=True)
class Settings:
    """The settings of one file. Each is also a key of the configuration, with dashes.

    Attributes:
        root: the folder that patterns are told from.
        select: codes, beginnings of codes or names of the rules to run; none is all.
        ignore: the same, of the rules to leave out; of two that fit, the longer one wins.
        extend_select: further ones, beside those that are selected elsewhere.
        extend_ignore: further ones to leave out.
        per_file_ignores: by pattern, what to leave out in the files that fit; ``!`` turns a pattern round.
        exclude: patterns, as git has them, of what is not looked at.
        extend_exclude: further ones.
        respect_gitignore: whether what git ignores is not looked at either.
        force_exclude: whether that also holds for what was named.
        fixable: the rules whose fixes may be made; none is all.
        unfixable: those whose fixes may not.
        unsafe_fixes: whether fixes are made that should be looked at.
        output_format: how findings are told.
        static: whether files are only read.
        fail_on: the least severity that makes the check fail.
        cache_dir: where results are kept; none is beside the configuration.
        preview: whether rules are run that may still change.
        target: the versions that the model is for, as ``vllm==0.33``; the newest ones where nothing is said.
    """

    root: Path = Path()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    extend_ignore: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    exclude: tuple[str, ...] = EXCLUDED
    extend_exclude: tuple[str, ...] = ()
    respect_gitignore: bool = True
    force_exclude: bool = False
    fixable: tuple[str, ...] = ()
    unfixable: tuple[str, ...] = ()
    unsafe_fixes: bool = False
    output_format: str = "full"
    static: bool = False
    fail_on: Severity = Severity.WARNING
    cache_dir: str = ""
    preview: bool = False
    target: tuple[str, ...] = ()

    def rules_for(self, file: Path) -> list[Rule]:
        """The rules that are told of ``file``."""
        left_out = [code for pattern, codes in self.per_file_ignores if self._fits(pattern, file) for code in codes]
        wanted = self.select + (self.extend_select if self.select else ())
        chosen = choose(wanted, self.ignore + self.extend_ignore, left_out)
        return [rule for rule in chosen if (self.preview or not rule.preview) and self._holds(rule)]

    @property
    def unheard(self) -> list[str]:
        """The rules that are selected by name and not run, because they may still change."""
        named = {name.lower() for name in (*self.select, *self.extend_select)}
        return [
            rule.code
            for rule in rules()
            if rule.preview and not self.preview and {rule.code.lower(), rule.name} & named
        ]

    def _holds(self, rule: Rule) -> bool:
        """Whether the versions that the model is for are ones that the rule is about."""
        meant = dict(one.split("==", 1) for one in self.target)
        return all(_version(meant.get(package, first)) >= _version(first) for package, first in rule.first.items())

    def mends(self, finding: Finding) -> bool:
        """Whether the edits of ``finding`` may be made."""
        allowed = finding.fix is Fix.SAFE or (finding.fix is Fix.UNSAFE and self.unsafe_fixes)
        return allowed and finding.code in {rule.code for rule in choose(self.fixable, self.unfixable)}

    def excluded(self, path: Path, *, folder: bool) -> bool:
        """Whether a pattern leaves ``path`` out."""
        told = _told_from(self.root, path) + ("/" if folder else "")
        return _spec((*self.exclude, *self.extend_exclude)).match_file(told)

    def _fits(self, pattern: str, file: Path) -> bool:
        turned = pattern.startswith("!")
        return _spec((pattern.removeprefix("!"),)).match_file(_told_from(self.root, file)) is not turned


def choose(select: Collection[str] = (), ignore: Collection[str] = (), never: Collection[str] = ()) -> list[Rule]:
    """The rules that ``select`` names and neither ``ignore`` nor ``never`` does.

    Where ``select`` and ``ignore`` both fit a rule, the longer of the two decides, and ``ignore`` when they are alike.

    Raises:
        UsageError: a name fits no rule.
    """
    return list(_chosen(tuple(select), tuple(ignore), tuple(never)))


@lru_cache(maxsize=256)
def _chosen(select: tuple[str, ...], ignore: tuple[str, ...], never: tuple[str, ...]) -> tuple[Rule, ...]:
    for wanted in (*select, *ignore, *never):
        if all(_length(rule, wanted) < 0 for rule in rules()):
            raise UsageError(f"no rule is called {wanted!r}; see hfspeed rule --all")
    return tuple(
        rule
        for rule in rules()
        if _longest(rule, select or ("ALL",)) > _longest(rule, ignore) and _longest(rule, never) < 0
    )


def _longest(rule: Rule, names: Iterable[str]) -> int:
    return max((_length(rule, name) for name in names), default=-1)


def _length(rule: Rule, name: str) -> int:
    """How closely ``name`` fits ``rule``: the length of the beginning of its code; -1 when it does not fit."""
    if name.upper() == "ALL":
        return 0
    if rule.name == name.lower():
        return len(rule.code)
    return len(name) if name and rule.code.startswith(name.upper()) else -1


def _version(text: str) -> tuple[int, ...]:
    """The numbers that a version begins with."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


@lru_cache(maxsize=256)
def _spec(patterns: tuple[str, ...]) -> GitIgnoreSpec:
    return GitIgnoreSpec.from_lines(patterns)


def _told_from(root: Path, path: Path) -> str:
    whole, top = path.absolute(), root.absolute()
    return whole.relative_to(top).as_posix() if whole.is_relative_to(top) else path.name
