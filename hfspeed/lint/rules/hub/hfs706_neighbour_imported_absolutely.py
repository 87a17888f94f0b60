"""A file on the Hub imports the file beside it as if it were a package."""

import ast
import re
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Edit, Finding, Severity
from hfspeed.lint.hub import is_hub_folder
from hfspeed.lint.imports import PRESENT, required
from hfspeed.lint.rewrite import replaced, source
from hfspeed.lint.rule import Rule


class NeighbourImportedAbsolutely(Rule):
    """transformers fetches the files that a file imports with a dot. One that is imported without is looked for among
    the installed packages, where it is not.
    """

    code = "HFS706"
    since = "0.1"
    severity = Severity.ERROR
    message = "`{package}` lies beside this file and is imported as a package"
    cost = "the model cannot be loaded from the Hub"
    help = "write from .{package} import"

    bad = Example(
        """
        from configuration_example import ExampleConfig  # HFS706

        class ExampleModel(PreTrainedModel):
            config_class = ExampleConfig
        """,
        files={
            "config.json": '{"auto_map": {"AutoModel": "modeling_example.ExampleModel"}}',
            "configuration_example.py": "class ExampleConfig(PreTrainedConfig):\n    pass\n",
        },
    )
    good = Example(
        """
        from .configuration_example import ExampleConfig

        class ExampleModel(PreTrainedModel):
            config_class = ExampleConfig
        """,
        files={"config.json": '{"auto_map": {"AutoModel": "modeling_example.ExampleModel"}}'},
    )

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look at every import that counts as a requirement, for one that is a file here."""
        folder = facts.path.parent
        if not is_hub_folder(folder, facts.disk):
            return
        for node, package in required(facts):
            if package not in PRESENT and package != "hfspeed" and facts.disk.exists(folder / f"{package}.py"):
                yield self.at(facts, node, package=package)

    def mend(self, facts: Facts, node: ast.AST) -> Iterator[Edit]:
        """Put the dot before the name."""
        if isinstance(node, ast.ImportFrom):
            yield replaced(facts, node, re.sub(r"^from(\s+)", r"from\1.", source(facts, node), count=1))
