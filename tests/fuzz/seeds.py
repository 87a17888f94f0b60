"""What is broken on purpose: examples of rules, small whole models, and what ships with transformers."""

from __future__ import annotations

import ast
import random
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from hfspeed.lint.rules import rules

ROOT = Path(__file__).resolve().parents[2]
LINES = (20, 60, 120)


class Seed(NamedTuple):
    """A text, with what may lie beside it: the ``config.json`` of a folder that brings its own code."""

    text: str
    config: str | None = None


class Seeds:
    """Texts by kind; long files are read when one is wanted, and given in pieces."""

    def __init__(self) -> None:
        examples = [one for rule in rules() for one in (rule.bad, rule.good)]
        self.examples = [Seed(one.text, one.files.get("config.json")) for one in examples]
        folders = [*sorted((ROOT / "tests" / "hub").iterdir()), *sorted((ROOT / "examples").iterdir())]
        self.models = [
            Seed(file.read_text("utf-8"), (folder / "config.json").read_text("utf-8"))
            for folder in folders
            if (folder / "config.json").is_file()
            for file in sorted(folder.glob("*.py"))
        ]
        spec = find_spec("transformers")
        home = Path(spec.origin).parent / "models" if spec is not None and spec.origin is not None else None
        self.shipped = sorted(home.glob("*/modeling_*.py")) if home is not None else []

    def one(self, chance: random.Random) -> Seed:
        """A seed: an example or a whole model more than half of the time, else pieces of a file of transformers."""
        kind = chance.random()
        if kind < 0.4 or not self.shipped:
            return chance.choice(self.examples)
        if kind < 0.55:
            return chance.choice(self.models)
        text = chance.choice(self.shipped).read_text("utf-8")
        if kind < 0.8:
            return Seed(_classes(text, chance))
        if kind < 0.99:
            lines = text.split("\n")
            start = chance.randrange(len(lines))
            return Seed("\n".join(lines[start : start + chance.choice(LINES)]))
        return Seed(text)


def _classes(text: str, chance: random.Random) -> str:
    """Some classes of a file, the last ones among them, as short as a small model: a whole that rules can follow."""
    lines = text.split("\n")
    nodes = [one for one in ast.parse(text).body if isinstance(one, ast.ClassDef | ast.FunctionDef)]
    short = [one for one in nodes if (one.end_lineno or 0) - one.lineno < 90]
    taken = set(chance.sample(short, min(len(short), chance.randint(2, 6))))
    return "\n\n\n".join("\n".join(lines[one.lineno - 1 : one.end_lineno]) for one in short if one in taken)
