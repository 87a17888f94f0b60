"""How findings are told: one file per format, each a function from findings and checked files to text."""

from collections.abc import Callable, Sequence

from rich.text import Text

from hfspeed.lint.finding import Finding
from hfspeed.lint.report.concise import concise
from hfspeed.lint.report.full import full
from hfspeed.lint.report.github import github
from hfspeed.lint.report.gitlab import gitlab
from hfspeed.lint.report.json import json
from hfspeed.lint.report.junit import junit
from hfspeed.lint.report.sarif import sarif
from hfspeed.lint.report.statistics import statistics

FORMATS: dict[str, Callable[[Sequence[Finding], Sequence[str]], Text]] = {
    "full": full,
    "concise": concise,
    "json": json,
    "github": github,
    "gitlab": gitlab,
    "junit": junit,
    "sarif": sarif,
}

__all__ = ["FORMATS", "statistics"]
