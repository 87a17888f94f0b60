"""Weights of attention that are listed beside other results become nothing; the list stays."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from hfspeed.graph.record import record
from hfspeed.pattern.by_hand import by_hand

TOKENS = 6


class Listing(nn.Module):
    """Shows weights to whoever asks, in a tuple that grows."""

    def __init__(self) -> None:
        super().__init__()
        self.all, self.show = nn.Linear(32, 96, bias=False), False

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """``[1, tokens, 32]`` to the same, and more."""
        query, key, value = self.all(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        scores = query @ key.mT / 8**0.5
        scores = scores + torch.full(scores.shape[-2:], float("-inf"), device=x.device).triu(1)
        weights = F.softmax(scores, dim=-1)
        mixed = weights @ value
        outputs = (mixed.transpose(1, 2).flatten(2), None)
        if self.show:
            outputs += (weights,)
        every = [*outputs, weights]
        return tuple(every)


class Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mixer = Listing()

    def forward(self, x: torch.Tensor) -> torch.Tensor | None:
        """``[1, tokens, 32]`` to the same."""
        return self.mixer(x)[0]  # type: ignore[no-any-return]


def test_lists_stay_and_weights_in_them_are_nothing() -> None:
    x = torch.empty(1, TOKENS, 32, device="meta")
    with torch.device("meta"):
        model = Whole().eval()
    known = {torch.empty(1, device="meta"): torch.zeros(1)}  # else no values are followed, and masks have none
    recording = record(model, {"x": x}, values=known)
    found = by_hand(recording.calls["mixer"], TOKENS)
    assert found is not None
    assert "outputs += (None,)" in found.text
    assert "every = [*outputs, None]" in found.text
    assert "softmax" not in found.text
