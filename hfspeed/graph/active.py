"""Which recorder is at work in a thread, and the patch by which it sees modules called."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from hfspeed.graph.autocast import none_on_meta
from hfspeed.graph.strange import strange

_PATCH = threading.RLock()
_ACTIVE = threading.local()


def recorder() -> Any:
    """The recorder at work in this thread, if one is."""
    return getattr(_ACTIVE, "recorder", None)


@contextmanager
def patched(active: Any) -> Iterator[None]:
    """While the block runs, calls of modules in this thread go through ``active``."""
    with _PATCH:
        original = nn.Module.__call__

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if recorder() is not active:
                return original(module, *args, **kwargs)
            if id(module) in active.paths and (odd := strange(module, active.held, sys._getframe(1))):
                active.recording.strange.append((active.paths[id(module)], *odd))
            return active.call(original, module, args, kwargs)

        nn.Module.__call__ = call  # type: ignore[method-assign]
        _ACTIVE.recorder = active
        try:
            with none_on_meta():
                yield
        finally:
            nn.Module.__call__ = original  # type: ignore[method-assign]
            _ACTIVE.recorder = None
