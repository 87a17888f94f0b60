"""Finds and reads ``[tool.hfspeed]`` of pyproject.toml, or hfspeed.toml; what the command line says comes on top."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hfspeed.errors import UsageError
from hfspeed.lint.finding import Severity
from hfspeed.lint.report import FORMATS
from hfspeed.lint.settings import PACKAGES, Settings, choose

NAMES = (".hfspeed.toml", "hfspeed.toml", "pyproject.toml")
KEYS = {one.name.replace("_", "-"): one for one in fields(Settings) if one.name != "root"}
LISTS = frozenset(name for name, one in KEYS.items() if "tuple" in str(one.type) and name != "per-file-ignores")
PLAIN = frozenset({"exclude", "extend-exclude", "target"})
"""Lists of something else than rules."""


@dataclass(frozen=True, eq=False)
class Configuration:
    """Where settings come from.

    Attributes:
        given: what the command line says, by key.
        file: the only file to read, if one was named.
        isolated: whether no file is read at all.
        inline: single settings that the command line gives by key; its flags come on top of them.
    """

    given: Mapping[str, Any] = field(default_factory=dict)
    file: Path | None = None
    isolated: bool = False
    inline: Mapping[str, Any] = field(default_factory=dict)
    _known: dict[Path, Settings] = field(default_factory=dict)

    def of(self, path: Path) -> Settings:
        """The settings of the file or folder ``path``: of the nearest file above it, and of that one alone.

        Raises:
            UsageError: that file cannot be read, has an unknown key, or a value of the wrong kind.
        """
        folder = (path if path.is_dir() else path.parent).absolute()
        if folder not in self._known:
            self._known[folder] = self._settled(folder)
        return self._known[folder]

    def _settled(self, folder: Path) -> Settings:
        found = self.file if self.isolated or self.file else nearest(folder)
        read = _read(found) if found and not self.isolated else {}
        settled = {**read, **_checked(self.inline, "--config"), **_checked(self.given, "the command line")}
        for key in ("extend-select", "extend-ignore", "extend-exclude"):
            settled[key] = (*read.get(key, ()), *self.given.get(key, ()))
        # A selection on the command line is meant as it is, whatever the file leaves out.
        if "select" in self.given and "ignore" not in {*self.given, *self.inline}:
            settled.pop("ignore", None)
        root = found.parent if found else Path.cwd()
        return Settings(root=root, **{key.replace("-", "_"): value for key, value in settled.items()})


def nearest(folder: Path) -> Path | None:
    """The configuration that holds for ``folder``; a pyproject.toml without our table is passed by."""
    for parent in (folder, *folder.parents):
        for name in NAMES:
            file = parent / name
            if file.is_file() and (name != "pyproject.toml" or "hfspeed" in _parsed(file).get("tool", {})):
                return file
    return None


def parsed_pairs(listed: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """``("a.py:HFS1", "b.py:HFS2")`` by pattern.

    Raises:
        UsageError: one has no colon.
    """
    found: dict[str, tuple[str, ...]] = {}
    for one in listed:
        pattern, colon, code = one.rpartition(":")
        if not colon or not pattern:
            raise UsageError(f"--per-file-ignores wants PATTERN:CODE, not {one!r}")
        found[pattern] = (*found.get(pattern, ()), code)
    return found


def inline(listed: Sequence[str]) -> tuple[Path | None, dict[str, Any]]:
    """What ``--config`` was given, any number of times: at most one file, and settings such as ``static=true``.

    A value is read as TOML has it, and taken as a string where that does not work.

    Raises:
        UsageError: there are two files, or something is neither a file nor a setting.
    """
    files: list[Path] = []
    found: dict[str, Any] = {}
    for one in listed:
        key, equals, value = (part.strip() for part in one.partition("="))
        if Path(one).is_file():
            files.append(Path(one))
        elif not equals or not key:
            raise UsageError(f"--config wants a file that exists, or KEY=VALUE, not {one!r}")
        else:
            try:
                found |= tomllib.loads(f"{key} = {value}")
            except tomllib.TOMLDecodeError:
                found[key] = value
    if len(files) > 1:
        raise UsageError(f"--config takes one file, not {' and '.join(map(str, files))}")
    return (files[0] if files else None), found


def _read(file: Path, below: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The settings of a file, on top of those of the file that it extends."""
    table = dict(_parsed(file))
    if file.name == "pyproject.toml":
        table = dict(table.get("tool", {}).get("hfspeed", {}))
    extended = table.pop("extend", None)
    checked = _checked(table, str(file))
    if extended is None:
        return checked
    if not isinstance(extended, str):
        raise UsageError(f"{file}: extend has to be the name of a file, not {extended!r}")
    above = (file.parent / Path(extended).expanduser()).resolve()
    if not above.is_file():
        raise UsageError(f"{file}: it extends {extended}, which is not there")
    if above in (*below, file.resolve()):
        raise UsageError(f"{file}: it extends {extended}, which extends it")
    return {**_read(above, (*below, file.resolve())), **checked}


def _parsed(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from error


def _checked(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values of a table in the types of `Settings`."""
    for key in table:
        if key not in KEYS:
            near = get_close_matches(key.replace("_", "-"), KEYS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(sorted(KEYS))}"
            raise UsageError(f"{where}: there is no setting {key!r}; {hint}")
    return {key: _value(key, value, where) for key, value in table.items()}


def _value(key: str, value: Any, where: str) -> Any:
    if key in LISTS:
        found = _strings(value, f"{where}: {key}", codes=key not in PLAIN)
        return _targets(found, where) if key == "target" else found
    if key == "per-file-ignores":
        if not isinstance(value, Mapping):
            raise UsageError(f"{where}: {key} has to be a table of patterns, not {value!r}")
        return tuple((name, _strings(codes, f"{where}: {key}", codes=True)) for name, codes in value.items())
    if key in ("output-format", "fail-on"):
        known = FORMATS if key == "output-format" else tuple(Severity)
        if value not in known:
            raise UsageError(f"{where}: there is no {key} {value!r}; choose one of {', '.join(known)}")
        return Severity(value) if key == "fail-on" else value
    wanted = str if key == "cache-dir" else bool
    if not isinstance(value, wanted):
        raise UsageError(f"{where}: {key} has to be {'a string' if wanted is str else 'true or false'}, not {value!r}")
    return value


def _targets(listed: tuple[str, ...], where: str) -> tuple[str, ...]:
    for one in listed:
        package, equals, version = one.partition("==")
        if package not in PACKAGES or not equals or not re.fullmatch(r"\d+(\.\w+)*", version):
            raise UsageError(
                f"{where}: target wants {' or '.join(f'{name}==VERSION' for name in PACKAGES)}, not {one!r}"
            )
    return listed


def _strings(value: Any, what: str, *, codes: bool) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise UsageError(f"{what} has to be a list of strings, not {value!r}")
    if codes:
        try:
            choose(ignore=value)
        except UsageError as error:
            raise UsageError(f"{what}: {error}") from error
    return tuple(value)
