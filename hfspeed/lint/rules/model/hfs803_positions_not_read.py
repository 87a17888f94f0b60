"""The model does not take its positions from `position_ids`."""

from hfspeed.example import Example
from hfspeed.lint.finding import Severity
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class PositionsNotRead(FusionBlocker):
    """A server packs many sequences side by side, each at a place of its own. A model that counts positions by
    itself would count across them.
    """

    code = "HFS803"
    since = "0.1"
    severity = Severity.ERROR
    reasons = (Reason.POSITIONS_NOT_READ,)
    cost = "the model cannot be served"
    help = "take position_ids as an argument and use it wherever a position is needed"

    bad = Example("""
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)  # HFS803
        hidden_states = self.embed(input_ids) + self.embed_positions(positions)
    """)
    good = Example("""
        hidden_states = self.embed(input_ids) + self.embed_positions(position_ids)
    """)
