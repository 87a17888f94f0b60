"""Positions counted along a row become a parameter, handed down to where they are counted."""

from __future__ import annotations

import torch
from torch import nn

from hfspeed.graph.record import record
from hfspeed.pattern.counted import counted
from hfspeed.pattern.edit import changed
from hfspeed.pattern.site import recovered_of

TOKENS = 9


def count(ids):
    first = torch.zeros(1, dtype=torch.long)
    return torch.cat([first, torch.arange(1, ids.shape[1])])


class Own(nn.Module):
    """Counts in two steps, from its own buffer, in a type of its own, by a function, and not only positions."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(32, 4)
        self.register_buffer("numbers", torch.arange(32)[None])

    def forward(self, ids, past=0):
        tokens = ids.shape[1]
        one = torch.arange(past, tokens + past, device=ids.device).unsqueeze(0)
        two = self.numbers[:, :tokens]
        three = torch.arange(tokens, dtype=torch.float32) + 2
        four = count(ids)
        other = torch.arange(tokens) * 2
        return self.table(four) + self.table(one) + self.table(two) + three[None, :, None] + self.table(other)


class Positions(nn.Embedding):
    def forward(self, ids):
        at = torch.arange(ids.shape[1])
        return super().forward(at + 2)


class Middle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.positions = Positions(32, 4)

    def forward(self, ids):
        return self.positions(
            ids,
        )


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.middle = Middle()

    def forward(self, ids, **kwargs):
        return self.middle(ids)


class Wrapper(nn.Module):
    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base

    def forward(self, ids):
        return self.base(ids)


def texts(base: nn.Module) -> dict[str, str]:
    recording = record(Wrapper(base), {"ids": torch.arange(TOKENS)[None] % 5}, keep_values=True)
    found = counted(recording, "base", TOKENS)
    return {path: changed(recovered_of(recording.calls[path].cls, "forward"), made) for path, made in found.items()}


def test_every_way_to_count() -> None:
    text = texts(Own())["base"]
    assert "def forward(self, ids, past=0, token_positions: torch.Tensor | None = None):" in text
    assert "one = token_positions\n" in text
    assert "two = token_positions\n" in text
    assert "three = token_positions[0].to(torch.float32) + 2\n" in text
    assert "four = token_positions[0]\n" in text
    assert "other = token_positions[0] * 2" in text


def test_handed_down_through_every_caller() -> None:
    found = texts(Outer())
    assert list(found) == ["base.middle.positions", "base.middle", "base"]
    assert "token_positions: torch.Tensor | None = None, **kwargs):" in found["base"]
    assert "self.middle(ids, token_positions=token_positions)" in found["base"]
    assert "ids,\n    token_positions=token_positions)" in found["base.middle"].replace("        ", "    ")
    assert "at = token_positions[0]\n" in found["base.middle.positions"]


def test_what_is_made_of_tokens_is_no_count() -> None:
    class Made(nn.Module):
        def forward(self, ids):
            return (ids >= 0).cumsum(-1) - 1

    assert not texts(Made())
