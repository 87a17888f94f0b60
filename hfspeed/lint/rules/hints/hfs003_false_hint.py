"""A hint says something that the code does not do."""

from hfspeed.example import Example
from hfspeed.lint.finding import Severity
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class FalseHint(FusionBlocker):
    """A hint may help where the code cannot be read, but it is checked like everything else. One that names a
    part which does not play its role would have led to a wrong plan.
    """

    code = "HFS003"
    since = "0.1"
    severity = Severity.ERROR
    reasons = (Reason.FALSE_HINT,)
    cost = "the hint is not followed"
    help = "take the hint away, or name the child that plays the part"

    bad = Example("""
        @decoder_layers("towers")  # HFS003
        class Model(PreTrainedModel):
            def __init__(self, config):
                super().__init__(config)
                self.towers = nn.ModuleList(Tower(config) for _ in range(2))
                self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
    """)
    good = Example("""
        @decoder_layers("layers")
        class Model(PreTrainedModel):
            def __init__(self, config):
                super().__init__(config)
                self.towers = nn.ModuleList(Tower(config) for _ in range(2))
                self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
    """)
