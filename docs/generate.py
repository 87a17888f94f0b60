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

`hfspeed check` tells these, `hfspeed rule CODE` explains one. Many lend their words to a
[refusal](refusals.md#refusals) of the planner. [Settings](checking.md) choose among them, comments
[silence](silencing.md) them.

| code | name | severity | fix |
|---|---|---|---|
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages; MkDocs calls this when it has found the written ones."""
    files.append(File.generated(config, "rules.md", content=rule_page()))
    for rule in rules():
        files.append(File.generated(config, f"rules/{rule.code}.md", content=one_rule(rule)))
    return files


def rule_page() -> str:
    """Every rule in a table."""
    rows = [f"| [{rule.code}](rules/{rule.code}.md) | {rule.name} | {rule.severity} | {rule.fix} |" for rule in rules()]
    return RULES + "\n".join(rows) + "\n"


def one_rule(rule: Rule) -> str:
    """A rule as a page: why, cost, help, found, better."""
    served = f"{rule.served[0]}, and {rule.served[1]}" if rule.served else ""
    said = [
        ("Cost", rule.cost),
        ("Where a planner serves the model all the same", served),
        ("Help", rule.help),
        ("Reasons", ", ".join(f"`{reason}`" for reason in rule.reasons)),
    ]
    return "\n".join([
        f"# {rule.code} {rule.name}",
        "",
        f"{rule.severity}, since {rule.since}, fix: {rule.fix}; {rule.versions}",
        *(("", "It may still change, and is run only with `--preview`.") if rule.preview else ()),
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
