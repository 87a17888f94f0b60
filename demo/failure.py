"""What stops the demo."""


class DemoError(Exception):
    """A step did not do what it should; the message says which and where to look."""
