"""The deep check gave no answer."""

from hfspeed.example import Example
from hfspeed.lint.finding import Severity
from hfspeed.lint.rule import Rule


class DeepCheckFailed(Rule):
    """The model is built and run once, without weights, in a process of its own. It did not get as far as a plan:
    the file could not be imported, hung, exited, or used too much memory.
    """

    code = "HFS901"
    since = "0.1"
    severity = Severity.ERROR
    message = "no plan could be made: {error}"
    cost = "only what can be read in the file was checked"
    help = "run hfspeed plan on it to see all of the error, or check with --static"

    bad = Example("""
        import sys  # HFS901

        sys.exit("please run setup.py first")
    """)
    good = Example("""
        from transformers import PreTrainedModel
    """)
