"""Pages that are made from the code when the documentation is built, so that they cannot fall behind it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

from hfspeed.lint.rules import rules

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

    from hfspeed.lint.rule import Rule

RULES = """# Rules

`hfspeed check` tells these, `hfspeed rule CODE` explains one. Most lend their words to a
[refusal](refusals.md#refusals) of the planner.

| code | name | severity |
|---|---|---|
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages; MkDocs calls this when it has found the written ones."""
    files.append(File.generated(config, "rules.md", content=rule_page()))
    return files


def rule_page() -> str:
    """Every rule on one page."""
    rows = [f"| [{rule.code}](#{rule.code.lower()}) | {rule.name} | {rule.severity} |" for rule in rules()]
    return RULES + "\n".join(rows) + "\n\n" + "\n".join(one_rule(rule) for rule in rules())


def one_rule(rule: Rule) -> str:
    """A rule as a section: why, cost, help, found, better."""
    said = [("Cost", rule.cost), ("Help", rule.help), ("Reasons", ", ".join(f"`{reason}`" for reason in rule.reasons))]
    return "\n".join([
        f"## {rule.code}",
        "",
        f"**{rule.name}** ({rule.severity}, since {rule.since})",
        "",
        " ".join((inspect.getdoc(type(rule)) or "").split()),
        "",
        *(f"- {word}: {plain(text)}" for word, text in said if text),
        "",
        "Found:",
        "",
        f"```python\n{rule.bad.shown.rstrip()}\n```",
        "",
        "Use instead:",
        "",
        f"```python\n{rule.good.shown.rstrip()}\n```",
        "",
    ])  # fmt: skip


def plain(template: str) -> str:
    """A template with its fields as words."""
    return template.replace("{", "").replace("}", "")
