"""A file on the Hub imports a package that is not there everywhere."""

import ast
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Edit, Finding
from hfspeed.lint.hub import is_hub_folder
from hfspeed.lint.imports import PRESENT, required
from hfspeed.lint.rewrite import replaced, source
from hfspeed.lint.rule import Rule


class ImportBecomesRequirement(Rule):
    """transformers reads the imports of code from the Hub before it runs it, and refuses to load a model when a package
    is missing: also for an import inside a function or under TYPE_CHECKING.
    """

    code = "HFS705"
    since = "0.1"
    message = "the import makes `{package}` a requirement of the model"
    cost = "nobody without `{package}` can load the model"
    help = "import it in a try, or under a question such as `if is_flash_attn_2_available()`"

    bad = Example(
        """
        from einops import rearrange, repeat  # HFS705

        class ExampleConfig(PreTrainedConfig):
            pass
        """,
        files={"config.json": '{"auto_map": {"AutoConfig": "modeling_example.ExampleConfig"}}'},
    )
    good = Example(
        """
        try:
            from einops import rearrange, repeat
        except ImportError:
            rearrange = repeat = None

        class ExampleConfig(PreTrainedConfig):
            pass
        """,
        files={"config.json": '{"auto_map": {"AutoConfig": "modeling_example.ExampleConfig"}}'},
    )

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look at every import that counts; hfspeed itself and files beside this one have rules of their own."""
        folder = facts.path.parent
        if not is_hub_folder(folder, facts.disk):
            return
        for node, package in required(facts):
            if package not in PRESENT and package != "hfspeed" and not facts.disk.exists(folder / f"{package}.py"):
                yield self.at(facts, node, package=package)

    def propose(self, facts: Facts, node: ast.AST) -> Iterator[Edit]:
        """Put the import in a try, after which its names may be None; the author knows where that matters."""
        assert isinstance(node, ast.Import | ast.ImportFrom)
        names = [one.asname or one.name.partition(".")[0] for one in node.names]
        place = facts.span(node)
        white = facts.lines[place.line - 1][: place.column - 1]
        rest = facts.lines[(place.end_line or 1) - 1][(place.end_column or 1) - 1 :].strip()
        several = isinstance(node, ast.Import) and len(names) > 1
        if white.strip() or "*" in names or several or (rest and not rest.startswith("#")):
            return
        written = source(facts, node).replace("\n", "\n    ")
        missing = " = ".join([*dict.fromkeys(names), "None"])
        yield replaced(facts, node, f"try:\n{white}    {written}\n{white}except ImportError:\n{white}    {missing}")
