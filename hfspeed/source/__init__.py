"""The forward as text: recovered, understood, edited. Standard library only."""

from hfspeed.source.edits import Edits
from hfspeed.source.recover import recover
from hfspeed.source.recovered import Recovered

__all__ = ["Edits", "Recovered", "recover"]
