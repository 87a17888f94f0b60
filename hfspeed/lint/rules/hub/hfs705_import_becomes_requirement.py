"""A file on the Hub imports a package that is not there everywhere."""

from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Finding
from hfspeed.lint.hub import is_hub_folder
from hfspeed.lint.imports import PRESENT, required
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
        from typing import TYPE_CHECKING

        if TYPE_CHECKING:
            import jaxtyping  # HFS705
        """,
        files={"config.json": '{"auto_map": {"AutoConfig": "modeling_example.TYPE_CHECKING"}}'},
    )
    good = Example(
        """
        from typing import TYPE_CHECKING

        try:
            import jaxtyping
        except ImportError:
            jaxtyping = None
        """,
        files={"config.json": '{"auto_map": {"AutoConfig": "modeling_example.TYPE_CHECKING"}}'},
    )

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look at every import that counts; hfspeed itself and files beside this one have rules of their own."""
        folder = facts.path.parent
        if not is_hub_folder(folder, facts.disk):
            return
        for node, package in required(facts):
            if package not in PRESENT and package != "hfspeed" and not facts.disk.exists(folder / f"{package}.py"):
                yield self.at(facts, node, package=package)
