"""The forward as text: recovered, understood, edited. Standard library only."""

from hfspeed.source.blocks import between, dominating_block
from hfspeed.source.carried import Loop, layer_loop
from hfspeed.source.edits import Edits
from hfspeed.source.effects import written
from hfspeed.source.recover import recover
from hfspeed.source.recovered import Recovered

__all__ = [
    "Edits",
    "Loop",
    "Recovered",
    "between",
    "dominating_block",
    "layer_loop",
    "recover",
    "written",
]
