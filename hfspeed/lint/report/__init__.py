"""How findings are told: one file per format, each a function from findings to text."""

from hfspeed.lint.report.concise import concise
from hfspeed.lint.report.full import full
from hfspeed.lint.report.github import github
from hfspeed.lint.report.json import json

FORMATS = {"full": full, "concise": concise, "json": json, "github": github}

__all__ = ["FORMATS", "concise", "full", "github", "json"]
