"""``hfspeed rule``: what a rule means, from the rule's own class."""

from __future__ import annotations

import inspect
import json
import re
from difflib import get_close_matches
from textwrap import fill, indent
from typing import Annotated, Any

import typer

from hfspeed.errors import UsageError
from hfspeed.lint.finding import DOCS
from hfspeed.lint.rule import Rule
from hfspeed.lint.rules import find, rules

PLACEHOLDER = re.compile(r"`?\{(\w+)\}`?")


def rule(
    name: Annotated[str | None, typer.Argument(metavar="CODE", help="A code, such as HFS101, or a name.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every rule.")] = False,
    output_format: Annotated[str, typer.Option(metavar="FORMAT", help="text or json")] = "text",
) -> None:
    """Explain a rule of the linter: what it finds, what that costs, and what to write instead."""
    if output_format not in ("text", "json"):
        raise UsageError(f"there is no format {output_format!r}; choose text or json")
    chosen = list(rules()) if every else [_one(name)]
    if output_format == "json":
        print(json.dumps([_fields(one) for one in chosen] if every else _fields(chosen[0]), indent=2))
    elif every:
        print("\n".join(f"{one.code}  {one.name:38} {one.severity}" for one in chosen))
    else:
        print(explained(chosen[0]))


def explained(one: Rule) -> str:
    """A rule as text: title, reason, cost, help, an example and the same written well."""
    said = [("message", one.message), ("cost", one.cost), ("help", one.help), ("fix", one.fix), ("since", one.since)]
    return "\n".join([
        f"{one.code} {one.name} ({one.severity})",
        "",
        fill(_rationale(one), 88),
        "",
        *(f"{word}: {_generic(text)}" for word, text in said if text),
        *("preview: run only with --preview" for _ in [one] if one.preview),
        *(f"tells refusals: {', '.join(one.reasons)}" for _ in one.reasons[:1]),
        f"tried with: {one.versions}",
        f"more: {DOCS}/{one.code}/",
        "",
        "Found:",
        "",
        indent(one.bad.shown, "    "),
        "Use instead:",
        "",
        indent(one.good.shown, "    ").rstrip(),
    ])  # fmt: skip


def _one(name: str | None) -> Rule:
    if name is None:
        raise UsageError("name a rule, such as HFS101, or pass --all")
    if (found := find(name)) is not None:
        return found
    known = [word for one in rules() for word in (one.code, one.name)]
    near = get_close_matches(name, known, n=1) or get_close_matches(name.upper(), known, n=1)
    raise UsageError(f"no rule is called {name!r}; " + (f"did you mean {near[0]}?" if near else "see --all"))


def _generic(template: str) -> str:
    """A template with its fields as ``<field>``."""
    return PLACEHOLDER.sub(r"<\1>", template)


def _rationale(one: Rule) -> str:
    return " ".join((inspect.getdoc(type(one)) or "").split())


def _fields(one: Rule) -> dict[str, Any]:
    return {
        "code": one.code,
        "name": one.name,
        "severity": str(one.severity),
        "since": one.since,
        "versions": one.versions,
        "url": f"{DOCS}/{one.code}/",
        "fix": str(one.fix),
        "message": one.message,
        "cost": one.cost,
        "help": one.help,
        "rationale": _rationale(one),
        "bad": one.bad.shown,
        "good": one.good.shown,
        "preview": one.preview,
        "reasons": [str(reason) for reason in one.reasons],
    }
