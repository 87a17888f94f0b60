"""The folder has a causal language model for AutoClass, but no model without its head."""

import ast
import json
import re
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.classes import ClassFacts, last_name
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Edit, Finding, Severity
from hfspeed.lint.hub import auto_map, config_of
from hfspeed.lint.rule import Rule
from hfspeed.refusal import Place

HEAD = "AutoModelForCausalLM"
KEY = re.compile(rf'(?P<white>[\s{{,])"{HEAD}"\s*:')


class AutoModelMissing(Rule):
    """vLLM without hfspeed makes the model without its head, by AutoModel, and puts a head of its own on it. A folder
    that only says which class has the head cannot be loaded this way. hfspeed needs no such entry.
    """

    code = "HFS702"
    since = "0.1"
    severity = Severity.WARNING
    message = "config.json maps `AutoModelForCausalLM` to `{cls}`, but `AutoModel` to nothing"
    cost = "vLLM without hfspeed cannot load the folder"
    help = "map AutoModel to the decoder's class in auto_map"

    bad = Example(
        """
        class ExampleModel(PreTrainedModel):
            pass

        class ExampleForCausalLM(PreTrainedModel):  # HFS702
            def __init__(self, config):
                super().__init__(config)
                self.model = ExampleModel(config)
        """,
        files={"config.json": '{"auto_map": {"AutoModelForCausalLM": "modeling_example.ExampleForCausalLM"}}'},
    )
    good = Example(
        """
        class ExampleModel(PreTrainedModel):
            pass

        class ExampleForCausalLM(PreTrainedModel):
            def __init__(self, config):
                super().__init__(config)
                self.model = ExampleModel(config)
        """,
        files={
            "config.json": (
                '{"auto_map": {"AutoModel": "modeling_example.ExampleModel", '
                '"AutoModelForCausalLM": "modeling_example.ExampleForCausalLM"}}'
            )
        },
    )

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look in the map beside the file that defines the class with the head."""
        mapped = auto_map(facts.path.parent, facts.disk)
        file, _, name = mapped.get(HEAD, "").partition(".")
        if file == facts.path.stem and "AutoModel" not in mapped and name in facts.classes:
            yield self.at(facts, facts.classes[name].node, cls=name)

    def mend(self, facts: Facts, node: ast.AST) -> Iterator[Edit]:
        """Add an entry before the one there is, where the decoder's class is beyond doubt."""
        assert isinstance(node, ast.ClassDef)
        decoder = _decoder(facts, facts.classes[node.name])
        file = facts.path.parent / "config.json"
        text = facts.disk.text(file)
        found = list(KEY.finditer(text))
        if decoder is None or len(found) != 1:
            return
        at = found[0].end("white")
        before = text[:at]
        white = before[len(before.rstrip()) :] or " "
        entry = f'"AutoModel": "{facts.path.stem}.{decoder}",{white}'
        wanted = {**config_of(file.parent, facts.disk)["auto_map"], "AutoModel": f"{facts.path.stem}.{decoder}"}
        if json.loads(before + entry + text[at:]).get("auto_map") == wanted:
            line = before.count("\n") + 1
            column = at - (before.rfind("\n") + 1) + 1
            yield Edit(Place(str(file), line, column, line, column), entry)


def _decoder(facts: Facts, cls: ClassFacts) -> str | None:
    """The one class of this file, itself a model, that ``cls`` makes an instance of."""
    values = [value for one in facts.lineage(cls) for given in one.assigned.values() for value in given]
    made = {last_name(value.func) for value in values if isinstance(value, ast.Call)}
    models = [
        name
        for name in made
        if name in facts.classes and any(base.endswith("PreTrainedModel") for base in _all_bases(facts, name))
    ]
    return models[0] if len(models) == 1 else None


def _all_bases(facts: Facts, name: str) -> set[str]:
    return {base for one in facts.lineage(facts.classes[name]) for base in one.bases}
