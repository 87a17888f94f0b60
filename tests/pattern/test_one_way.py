"""Where a method attends in one of several ways, the way that attention took is the only one left."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from hfspeed.graph.record import record
from hfspeed.pattern.by_hand import by_hand
from hfspeed.pattern.one_way import one_way

TOKENS = 6


class Forked(nn.Module):
    """A row of one token needs no mask, and goes elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.all = nn.Linear(32, 96, bias=False)
        self.fast = True

    def forward(self, x: torch.Tensor, cache: torch.Tensor | None = None) -> torch.Tensor:
        """``[1, tokens, 32]`` to the same."""
        query, key, value = self.all(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        if cache is not None:
            return query + cache
        if self.fast and x.shape[1] > 1:
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            mixed = (query @ key.mT / 8**0.5).softmax(-1) @ value
        return mixed.transpose(1, 2).flatten(2)


class Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mixer = Forked()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[1, tokens, 32]`` to the same."""
        return self.mixer(x)  # type: ignore[no-any-return]


def test_questions_are_answered_as_they_were() -> None:
    with torch.device("meta"):
        recording = record(Whole().eval(), {"x": torch.empty(1, TOKENS, 32)})
    found = by_hand(recording.calls["mixer"], TOKENS)
    assert found is not None
    text = one_way(found).text
    assert text.count("self.attn(") == 1
    assert "if True:\n" in text
    assert "if False:\n        return query + cache" in text
    assert "x.shape[1] > 1" in found.text
    assert "x.shape[1] > 1" not in text
