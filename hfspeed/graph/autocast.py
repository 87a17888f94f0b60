"""A block that switches autocast off is one on meta tensors as well, where torch knows no autocast at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.amp.autocast_mode import autocast


@contextmanager
def none_on_meta() -> Iterator[None]:
    """While the block runs, ``torch.autocast("meta", enabled=False)`` says nothing, as it does on other devices.

    Rotary embeddings ask for it on the device of their input. One that is enabled raises on meta as it always did:
    it changes dtypes, and there is nothing on meta that says how.
    """
    original = autocast.__init__

    def init(block: Any, device_type: str, dtype: Any = None, enabled: bool = True, **kwargs: Any) -> None:
        nothing = device_type == "meta" and not enabled
        original(block, "cpu" if nothing else device_type, dtype, enabled, **kwargs)

    setattr(autocast, "__init__", init)  # noqa: B010  mypy knows no other way
    try:
        yield
    finally:
        setattr(autocast, "__init__", original)  # noqa: B010
