"""config.json names a file or a class that is not there."""

import ast
import re
from collections.abc import Iterator
from difflib import get_close_matches

from hfspeed.example import Example
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Edit, Finding, Severity
from hfspeed.lint.hub import auto_map
from hfspeed.lint.rule import Rule
from hfspeed.refusal import Place


class AutoMapNamesNothing(Rule):
    """transformers looks the class up by the file and the name that auto_map gives, when the model is loaded. A name
    that was changed in only one of the two places is found by whoever loads it first.
    """

    code = "HFS703"
    since = "0.1"
    severity = Severity.ERROR
    message = "`{auto}` is mapped to `{wanted}`, and there is no such {what}"
    cost = "{auto} cannot load the folder"
    help = "name a file and a class of it in auto_map"

    bad = Example(
        """
        class ExampleModel(PreTrainedModel):  # HFS703
            pass
        """,
        files={"config.json": '{"auto_map": {"AutoModel": "modeling_example.ExmapleModel"}}'},
    )
    good = Example(
        """
        class ExampleModel(PreTrainedModel):
            pass
        """,
        files={"config.json": '{"auto_map": {"AutoModel": "modeling_example.ExampleModel"}}'},
    )

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look every entry of the map beside the file up; a file that is missing is told in the map itself."""
        for auto, wanted in auto_map(facts.path.parent, facts.disk).items():
            file, _, name = wanted.partition(".")
            if file == facts.path.stem and not _defines(facts, name):
                first = next(iter(facts.classes.values()), None)
                place = facts.place(first.node if first else facts.tree)
                near = get_close_matches(name, facts.classes, n=1)
                edits = _mapped(facts, auto, wanted, f"{file}.{near[0]}") if near else ()
                yield self.told(place, edits, auto=auto, wanted=wanted, what="class")
            elif not facts.disk.exists(facts.path.parent / f"{file}.py"):
                edits = _mapped(facts, auto, wanted, f"{facts.path.stem}.{name}") if name in facts.classes else ()
                yield self.told(_entry(facts, auto), edits, auto=auto, wanted=wanted, what="file")

    def propose(self, facts: Facts, node: ast.AST) -> Iterator[Edit]:
        """Made where the entry is looked up: a class spelled most like it, or the file that has the class."""
        yield from ()


def _defines(facts: Facts, name: str) -> bool:
    """Whether the file has ``name``, in whatever way: a class, an import, an assignment."""
    return name in facts.classes or re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", facts.text) is not None


def _entry(facts: Facts, auto: str) -> Place:
    file = facts.path.parent / "config.json"
    for number, line in enumerate(facts.disk.text(file).split("\n"), 1):
        if (found := line.find(f'"{auto}"')) >= 0:
            return Place(str(file), number, found + 1, number, found + len(auto) + 3)
    return Place(str(file), 1)


def _mapped(facts: Facts, auto: str, wanted: str, there: str) -> tuple[Edit, ...]:
    """The edit that maps ``auto`` to what is there, where the map says it once and plainly."""
    file = facts.path.parent / "config.json"
    text = facts.disk.text(file)
    found = list(re.finditer(rf'"{re.escape(auto)}"\s*:\s*"({re.escape(wanted)})"', text))
    if len(found) != 1:
        return ()
    line = text.count("\n", 0, found[0].start(1)) + 1
    column = found[0].start(1) - text.rfind("\n", 0, found[0].start(1))
    return (Edit(Place(str(file), line, column, line, column + len(wanted)), there),)
