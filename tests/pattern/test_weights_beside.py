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


class Asking(nn.Module):
    """Insists on a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.all = nn.Linear(32, 96, bias=False)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
        """``[1, tokens, 32]`` to the same."""
        query, key, value = self.all(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        assert mask is not None
        assert x.ndim == 3
        scores = query @ key.mT / 8**0.5
        if mask is not None:
            if mask.shape[-1] != x.shape[1]:
                raise ValueError(mask.shape)
            scores = scores + mask
        return ((F.softmax(scores, dim=-1) @ value).transpose(1, 2).flatten(2),)


class Whole(nn.Module):
    def __init__(self, mixer: nn.Module) -> None:
        super().__init__()
        self.mixer = mixer

    def forward(self, x: torch.Tensor) -> torch.Tensor | None:
        """``[1, tokens, 32]`` to the same."""
        mask = torch.full((TOKENS, TOKENS), float("-inf"), device=x.device).triu(1)
        given = (x, mask) if isinstance(self.mixer, Asking) else (x,)
        return self.mixer(*given)[0]  # type: ignore[no-any-return]


def text_of(mixer: type[nn.Module]) -> str:
    x = torch.empty(1, TOKENS, 32, device="meta")
    with torch.device("meta"):
        model = Whole(mixer()).eval()
    known = {torch.empty(1, device="meta"): torch.zeros(1)}  # else no values are followed, and masks have none
    found = by_hand(record(model, {"x": x}, values=known).calls["mixer"], TOKENS)
    assert found is not None
    return found.text


def test_nobody_asks_for_a_mask_that_nobody_reads() -> None:
    text = text_of(Asking)
    assert "mask is not None" not in text
    assert "assert x.ndim == 3" in text


def test_lists_stay_and_weights_in_them_are_nothing() -> None:
    text = text_of(Listing)
    assert "outputs += (None,)" in text
    assert "every = [*outputs, None]" in text
    assert "softmax" not in text
