"""What takes the place of an author's module answers what other code asks it: its plain public attributes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

PLAIN = (bool, int, float, str, type(None), torch.dtype)


def answers(ours: nn.Module, author: nn.Module | None) -> nn.Module:
    """Give ``ours`` the plain public attributes of ``author`` that it does not have; returns ``ours``.

    ``embed.embedding_dim`` and ``proj.in_features`` are the author's numbers then, on one rank and on several, in
    proofs as in vLLM. Private names, tensors and modules are not handed on.
    """
    for name, value in vars(author).items() if author is not None else ():
        if not name.startswith("_") and name != "training" and _plain(value) and not hasattr(ours, name):
            setattr(ours, name, value)
    return ours


def _plain(value: Any) -> bool:
    return isinstance(value, PLAIN) or (type(value) in {tuple, list} and all(isinstance(one, PLAIN) for one in value))
