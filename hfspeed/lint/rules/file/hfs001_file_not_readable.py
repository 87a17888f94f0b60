"""The file does not parse."""

from hfspeed.example import Example
from hfspeed.lint.finding import Severity
from hfspeed.lint.rule import Rule


class FileNotReadable(Rule):
    """A file that Python cannot read has no forward to look at. Nothing else is told of it."""

    code = "HFS001"
    since = "0.1"
    severity = Severity.ERROR
    message = "the file cannot be read: {error}"
    cost = "nothing else in the file was checked"
    help = "make `python -m py_compile` accept it"

    bad = Example("""
        class Block(nn.Module)  # HFS001
            pass
    """)
    good = Example("""
        class Block(nn.Module):
            pass
    """)
