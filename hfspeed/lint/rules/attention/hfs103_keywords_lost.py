"""Keywords given to the model do not arrive at its attention."""

import ast
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Edit, Finding
from hfspeed.lint.hops import forwards, lost_hops
from hfspeed.lint.nodes import walk
from hfspeed.lint.rewrite import argument_added
from hfspeed.lint.rule import Rule


class KeywordsLost(Rule):
    """Whoever runs a model may have something to tell its attention, such as where packed sequences begin. It goes
    in as keywords and has to be handed on from model to layer to attention to the interface; one hop that drops
    them is enough.
    """

    code = "HFS103"
    since = "0.1"
    message = "{lost}"
    cost = "keywords given to the model do not reach attention"
    help = "{help}"

    bad = Example("""
        class Attention(nn.Module):
            def forward(self, x, attention_mask=None, past_key_values=None, **kwargs):
                interface = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
                return interface(self, x, x, x, attention_mask, **kwargs)[0]

        class Layer(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.attn = Attention(config)

            def forward(self, x, attention_mask=None, **kwargs):
                return x + self.attn(x, attention_mask)  # HFS103

        class SmallForCausalLM(PreTrainedModel):
            _supports_attention_backend = True

            def __init__(self, config):
                super().__init__(config)
                self.layers = nn.ModuleList(Layer(config) for _ in range(2))

            def forward(self, x, attention_mask=None, **kwargs):
                for layer in self.layers:
                    x = layer(x, attention_mask, **kwargs)
                return x
    """)
    good = Example("""
        class Attention(nn.Module):
            def forward(self, x, attention_mask=None, past_key_values=None, **kwargs):
                interface = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
                return interface(self, x, x, x, attention_mask, **kwargs)[0]

        class Layer(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.attn = Attention(config)

            def forward(self, x, attention_mask=None, **kwargs):
                return x + self.attn(x, attention_mask, **kwargs)

        class SmallForCausalLM(PreTrainedModel):
            _supports_attention_backend = True

            def __init__(self, config):
                super().__init__(config)
                self.layers = nn.ModuleList(Layer(config) for _ in range(2))

            def forward(self, x, attention_mask=None, **kwargs):
                for layer in self.layers:
                    x = layer(x, attention_mask, **kwargs)
                return x
    """)

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Walk from each causal language model down to the interface and name every hop that drops keywords."""
        for hop in lost_hops(facts):
            yield self.at(facts, hop.node, lost=hop.lost, help=hop.help)

    def mend(self, facts: Facts, node: ast.AST) -> Iterator[Edit]:
        """Take further keywords where none are taken, and hand them on where they are dropped."""
        if isinstance(node, ast.FunctionDef):
            given = "**kwargs" if "kwargs" not in {one.id for one in walk(node) if isinstance(one, ast.Name)} else ""
        else:
            around = next((one for one in forwards(facts) if node in walk(one)), None)
            given = f"**{around.args.kwarg.arg}" if around is not None and around.args.kwarg else ""
        if given and isinstance(node, ast.FunctionDef | ast.Call):
            edit = argument_added(facts, node, given)
            yield from () if edit is None else (edit,)
