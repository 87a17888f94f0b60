"""What tensors with values some code makes: what is on meta takes no room."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches what operations give while it is on.

    Attributes:
        elements: of the largest tensor with values.
        total: of all of them together; those that live on are not told from those that do not.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements = self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for one in tree_leaves(out):
            if isinstance(one, torch.Tensor) and not one.is_meta:
                room = one.untyped_storage().nbytes() // max(1, one.element_size())
                size = min(one.numel(), room)
                self.elements, self.total = max(self.elements, size), self.total + size
        return out
