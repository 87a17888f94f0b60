"""A table that the model can compute is part of every checkpoint."""

import ast
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.classes import last_name
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Edit, Finding
from hfspeed.lint.hops import parts
from hfspeed.lint.nodes import calls_in, walk
from hfspeed.lint.rewrite import argument_added
from hfspeed.lint.rule import Rule

TABLES = frozenset({"arange", "cos", "sin", "tril", "triu"})


class ComputedBufferPersistent(Rule):
    """A persistent buffer has to be in the file that is loaded, in its type, and a checkpoint that was written without
    it does not load. Tables of positions and masks are computed when the model is made.
    """

    code = "HFS501"
    since = "0.1"
    message = "the buffer `{name}` is computed, and saved all the same"
    cost = "a checkpoint without `{name}` does not load, and one in half precision rounds it"
    help = "write persistent=False, if no checkpoint with it is to be loaded"

    bad = Example("""
        class Rotary(nn.Module):
            def __init__(self, size):
                super().__init__()
                inv_freq = 1.0 / (10000 ** (torch.arange(0, size, 2) / size))
                self.register_buffer("inv_freq", inv_freq)  # HFS501

        class SmallForCausalLM(PreTrainedModel):
            def __init__(self, config):
                super().__init__(config)
                self.rotary = Rotary(4)
    """)
    good = Example("""
        class Rotary(nn.Module):
            def __init__(self, size):
                super().__init__()
                inv_freq = 1.0 / (10000 ** (torch.arange(0, size, 2) / size))
                self.register_buffer("inv_freq", inv_freq, persistent=False)

        class SmallForCausalLM(PreTrainedModel):
            def __init__(self, config):
                super().__init__(config)
                self.rotary = Rotary(4)
    """)

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look at every buffer that a part of a causal language model registers in a method of its own."""
        for cls in parts(facts):
            for method in cls.methods.values():
                given = _assigned(method)
                for call in calls_in(method):
                    if last_name(call.func) == "register_buffer" and len(call.args) == 2 and not call.keywords:
                        name, value = call.args
                        if isinstance(name, ast.Constant) and _computed(value, given):
                            yield self.at(facts, call, name=str(name.value))

    def propose(self, facts: Facts, node: ast.AST) -> Iterator[Edit]:
        """Leave it out of the checkpoint, which changes what is saved."""
        assert isinstance(node, ast.Call)
        edit = argument_added(facts, node, "persistent=False")
        yield from () if edit is None else (edit,)


def _assigned(method: ast.FunctionDef) -> dict[str, list[ast.expr]]:
    found: dict[str, list[ast.expr]] = {}
    for node in walk(method):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
    return found


def _computed(value: ast.expr, given: dict[str, list[ast.expr]]) -> bool:
    """Whether ``value`` is a table: made by arange and its like, here or where its one name was assigned."""
    if isinstance(value, ast.Name):
        return any(_makes(one) for one in given.get(value.id, []))
    return _makes(value)


def _makes(value: ast.expr) -> bool:
    return any(last_name(call.func) in TABLES for call in calls_in(value))
