"""Tied weights are listed, where transformers wants to know what each is tied to."""

import ast
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.classes import ClassFacts, last_name
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Edit, Finding, Severity
from hfspeed.lint.rewrite import replaced
from hfspeed.lint.rule import Rule

NAME = "_tied_weights_keys"


class TiesNotAMapping(Rule):
    """transformers 5 reads a mapping from each tied weight to the one it is tied to. From a list it cannot tell, and
    a model whose configuration ties its weights cannot be made.
    """

    code = "HFS502"
    since = "0.1"
    severity = Severity.ERROR
    message = "`_tied_weights_keys` of `{cls}` is a list"
    cost = "transformers 5 cannot make the model when tie_word_embeddings is set"
    help = "map the name of the head's weight to the name of the embedding's"

    bad = Example("""
        class SmallModel(PreTrainedModel):
            def __init__(self, config):
                super().__init__(config)
                self.embed = nn.Embedding(8, 4)

        class SmallForCausalLM(PreTrainedModel):
            _tied_weights_keys = ["lm_head.weight"]  # HFS502

            def __init__(self, config):
                super().__init__(config)
                self.model = SmallModel(config)
                self.lm_head = nn.Linear(4, 8, bias=False)
    """)
    good = Example("""
        class SmallModel(PreTrainedModel):
            def __init__(self, config):
                super().__init__(config)
                self.embed = nn.Embedding(8, 4)

        class SmallForCausalLM(PreTrainedModel):
            _tied_weights_keys = {"lm_head.weight": "model.embed.weight"}

            def __init__(self, config):
                super().__init__(config)
                self.model = SmallModel(config)
                self.lm_head = nn.Linear(4, 8, bias=False)
    """)

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look at what every class says of its tied weights."""
        for cls in facts.classes.values():
            for value in cls.assigned.get(NAME, []):
                if isinstance(value, ast.List | ast.Tuple) and value.elts:
                    yield self.at(facts, value, cls=cls.name)

    def propose(self, facts: Facts, node: ast.AST) -> Iterator[Edit]:
        """Name the one embedding of the one part that is a model, for a single tied weight."""
        assert isinstance(node, ast.List | ast.Tuple)
        cls = next((one for one in facts.classes.values() if node in one.assigned.get(NAME, [])), None)
        (first, *rest) = node.elts
        if cls is None or rest or not isinstance(first, ast.Constant) or not isinstance(first.value, str):
            return
        found = [
            f"{name}.{table}.weight"
            for name, part in _made(facts, cls).items()
            for table, kind in _kinds(facts, part).items()
            if kind == "Embedding"
        ]
        if len(found) == 1:
            yield replaced(facts, node, f'{{"{first.value}": "{found[0]}"}}')


def _kinds(facts: Facts, cls: ClassFacts) -> dict[str, str]:
    """The children of ``cls`` and the names of what they are made by."""
    pairs = [pair for one in facts.lineage(cls) for pair in one.assigned.items()]
    return {name: last_name(value.func) for name, values in pairs for value in values if isinstance(value, ast.Call)}


def _made(facts: Facts, cls: ClassFacts) -> dict[str, ClassFacts]:
    return {name: facts.classes[kind] for name, kind in _kinds(facts, cls).items() if kind in facts.classes}
