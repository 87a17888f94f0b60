"""An entry of a plan names a module that the model does not have."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from hfspeed.example import Example
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Edit, Finding
from hfspeed.lint.lines import respelled
from hfspeed.lint.nodes import walk
from hfspeed.lint.rule import Rule

PLANS = tuple(f"{model}_{axis}_plan" for model in ("", "base_model") for axis in ("ep", "pp", "tp"))
INHERITS = re.compile(r"^from (transformers\.models|\.\.\w+)\.\S*modeling_", re.MULTILINE)
"""From another model, whose names are not seen here."""
ASSIGNED = re.compile(r"\bself\.(\w+)\s*(?::[^=\n]+)?=(?!=)")


class PlanNamesNothing(Rule):
    """A plan is matched against the paths of modules. An entry whose last name occurs nowhere matches none, so what it
    was written for stays whole on every rank, and nobody is told.
    """

    code = "HFS407"
    since = "0.1"
    message = "`{entry}` matches nothing: `{name}` is no name in {file}"
    cost = "what the entry was meant for is not split"
    help = "use the names of the model's children"

    bad = Example(
        """
        class ExampleConfig(PreTrainedConfig):
            base_model_tp_plan = {
                "layers.*.mlp.up_proj": "colwise",
                "layers.*.mlp.dwn_proj": "rowwise",  # HFS407
            }
        """,
        path="configuration_example.py",
        files={"modeling_example.py": "self.layers = x\nself.mlp = x\nself.up_proj = x\nself.down_proj = x\n"},
    )
    good = Example(
        """
        class ExampleConfig(PreTrainedConfig):
            base_model_tp_plan = {
                "layers.*.mlp.up_proj": "colwise",
                "layers.*.mlp.down_proj": "rowwise",
            }
        """,
        path="configuration_example.py",
        files={"modeling_example.py": "self.layers = x\nself.mlp = x\nself.up_proj = x\nself.down_proj = x\n"},
    )

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look for the last name of every entry in the modeling file: this one, or the one beside a configuration."""
        if "_plan" not in facts.text:
            return
        file, text = _modeling(facts)
        if not text or INHERITS.search(text):
            return
        for cls in facts.classes.values():
            for key in (key for name in PLANS for plan in cls.assigned.get(name, []) for key in _keys(plan)):
                name = str(key.value).rpartition(".")[2]
                elsewhere = re.sub(rf"([\"']){re.escape(str(key.value))}\1", "", text)  # a plan does not prove itself
                if name.isidentifier() and not re.search(rf"(?<![\w-]){name}(?!\w)", elsewhere):
                    yield self.at(facts, key, entry=str(key.value), name=name, file=file.name)

    def propose(self, facts: Facts, node: ast.AST) -> Iterator[Edit]:
        """Name what the modeling file gives a name that is spelled most like it."""
        assert isinstance(node, ast.Constant)
        known = sorted(set(ASSIGNED.findall(_modeling(facts)[1])))
        edit = respelled(facts, node, str(node.value).rpartition(".")[2], known)
        yield from () if edit is None else (edit,)


def _modeling(facts: Facts) -> tuple[Path, str]:
    """The modeling file that a plan in this file is about, and its text, which is empty where there is none."""
    file = facts.path.with_name(facts.path.name.replace("configuration_", "modeling_"))
    if not file.name.startswith("modeling_") or not facts.disk.exists(file):
        return file, ""
    try:
        return file, facts.text if file == facts.path else facts.disk.text(file)
    except (OSError, SyntaxError, UnicodeError, LookupError):
        return file, ""


def _keys(plan: ast.expr) -> Iterator[ast.Constant]:
    for node in walk(plan):
        if isinstance(node, ast.Dict):
            yield from (key for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
