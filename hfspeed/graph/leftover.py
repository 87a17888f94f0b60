"""What an earlier run left at modules, such as a number that is kept as a tensor: its value is still known."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from hfspeed.graph.call import Recording


def left_behind(model: nn.Module, recording: Recording) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Attributes on meta that ``recording`` made, with the values that follow from tokens and positions alone."""
    known = {
        id(node.meta["value"]): node.meta["shadow"]
        for call in recording.calls.values()
        for node in call.graph.nodes
        if isinstance(node.meta.get("shadow"), torch.Tensor)
    }
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, torch.Tensor) and value.is_meta and id(value) in known:
                yield value, known[id(value)]
