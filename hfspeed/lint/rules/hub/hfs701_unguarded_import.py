"""A modeling file on the Hub imports hfspeed as if everyone had it."""

import ast
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.hints.vendor import HINTS, NAME, vendored
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Edit, Finding, Severity
from hfspeed.lint.hub import is_hub_folder
from hfspeed.lint.rewrite import replaced, source
from hfspeed.lint.rule import Rule
from hfspeed.refusal import Place


class UnguardedImport(Rule):
    """transformers reads the imports of code from the Hub before it runs it, and refuses to load a model when a
    package is missing: also for an import inside a function or under TYPE_CHECKING. Only what stands in a try is
    left out.
    """

    code = "HFS701"
    since = "0.1"
    severity = Severity.ERROR
    message = "hfspeed is imported without a guard in a file that is loaded from the Hub"
    cost = "nobody without hfspeed can load the model"
    help = "run `hfspeed hints --vendor` here and import from .hfspeed_hints"

    bad = Example(
        """
        from hfspeed import decoder_layers  # HFS701

        @decoder_layers("layers")
        class ExampleModel(PreTrainedModel):
            def __init__(self, config):
                super().__init__(config)
                self.layers = nn.ModuleList()
        """,
        files={"config.json": '{"auto_map": {"AutoModel": "modeling_example.ExampleModel"}}'},
    )
    good = Example(
        """
        from .hfspeed_hints import decoder_layers

        @decoder_layers("layers")
        class ExampleModel(PreTrainedModel):
            def __init__(self, config):
                super().__init__(config)
                self.layers = nn.ModuleList()
        """,
        files={"config.json": '{"auto_map": {"AutoModel": "modeling_example.ExampleModel"}}'},
    )

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look at every import outside a try, where the file's folder is one that the Hub would serve."""
        if "hfspeed" not in facts.text:
            return
        wanted = [node for node in _unguarded(facts.tree) if _imports_hfspeed(node)]
        if wanted and is_hub_folder(facts.path.parent, facts.disk):
            for node in wanted:
                yield self.at(facts, node)

    def mend(self, facts: Facts, node: ast.AST) -> Iterator[Edit]:
        """Import the same names from a copy beside the file, and put it there."""
        if not isinstance(node, ast.ImportFrom) or node.module not in ("hfspeed", "hfspeed.hints"):
            return
        copy = facts.path.parent / NAME
        if not {alias.name for alias in node.names} <= set(HINTS):
            return
        written = source(facts, node)
        yield replaced(facts, node, written.replace(node.module, f".{copy.stem}", 1))
        if not facts.disk.exists(copy):
            yield Edit(Place(str(copy), 1), vendored())


def _unguarded(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, ast.Try):
            for other in [*child.handlers, *child.orelse, *child.finalbody]:
                yield other
                yield from _unguarded(other)
        else:
            yield from _unguarded(child)


def _imports_hfspeed(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.level == 0 and (node.module or "").split(".")[0] == "hfspeed"
    return isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "hfspeed" for alias in node.names)
