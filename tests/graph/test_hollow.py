"""Modules that decide by values: what they return on meta, and what is written down of them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hfspeed.graph.hollow import fits, on_meta, template
from hfspeed.graph.record import record


class Chooses(nn.Module):
    """Runs one linear or the other for each row, and says how it chose."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, flag: bool = True) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        y = torch.zeros_like(x)
        for row in (x.sum(-1) > 0).nonzero()[:, 0].tolist():
            y[row] = self.one(x[row])
        return y, None, x.argmax(-1).repeat_interleave(2)


class Filters(nn.Module):
    """How many rows come out hangs on values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[(x.sum(-1) > 0).nonzero()[:, 0]]


class Root(nn.Module):
    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block, self.last = block, nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.block(x)[0])


def test_shapes_for_any_number_of_tokens() -> None:
    with torch.device("meta"):
        module = Chooses()
    given = torch.empty(9, 16, device="meta")
    assert template(module, (given,), {}, 9) == ("Tx16", "none", "2T_int64")
    assert [tuple(one.shape) for one in on_meta(module, (given,), {}) if one is not None] == [(9, 16), (18,)]
    assert on_meta(module, (given,), {})[0] is not on_meta(module, (given,), {})[0]


class Cuts(nn.Module):
    """Every third row, which no number of tokens times something is."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[::3]


def test_a_size_that_hangs_on_values_is_seen_once_there_are_values() -> None:
    gives = template(Filters(), (torch.empty(9, 16),), {}, 9)
    assert gives is not None
    assert not fits(gives, Filters()(torch.arange(-64, 80.0).view(9, 16)), 9)
    assert fits(("Tx16", "none", "2T_int64"), (torch.empty(9, 16), None, torch.empty(18)), 9)
    assert not fits(("Tx16",), (torch.empty(9, 8),), 9)


def test_a_size_that_is_no_multiple_has_no_shape() -> None:
    assert template(Cuts(), (torch.empty(9, 16),), {}, 9) is None


def test_what_stopped_a_run_is_told_and_can_be_shut() -> None:
    with torch.device("meta"):
        root = Root(Chooses())
    given = {"x": torch.empty(9, 16, device="meta")}
    with pytest.raises(Exception, match="meta") as error:
        record(root, given)
    assert [call.path for call in error.value.stopped] == ["block", ""]
    recording = record(root, given, shut={Chooses})
    assert list(recording.calls) == ["", "block", "last"]
    assert recording.calls["block"].closed
    assert not recording.calls["last"].closed
    assert tuple(recording.output.shape) == (9, 8)


def test_with_values_it_runs_as_written() -> None:
    root = Root(Chooses())
    x = torch.randn(9, 16)
    with torch.no_grad():
        wanted = root(x)
    recording = record(root, {"x": x}, shut={Chooses}, keep_values=True)
    assert torch.equal(recording.output, wanted)
    assert "block.one" not in recording.calls
    assert len([n for n in recording.calls["block"].graph.nodes if n.op == "call_function"]) == 3


class Router(nn.Module):
    """Leaves a loss behind for whoever wants it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape to the same."""
        self.loss = x.new_zeros(())
        self.rows = int(x.shape[0])
        return x


class Routed(nn.Module):
    """Decides by values, so nobody looks into it."""

    def __init__(self) -> None:
        super().__init__()
        self.router = Router()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape to the same."""
        self.balance = x.sum()
        return self.router(x) if bool((x > 1).any()) else self.router(x) + 1


def test_what_is_left_for_others_to_read_is_left_on_meta() -> None:
    module = Routed().to("meta")
    for _ in range(2):
        given = torch.empty(3, 4, device="meta")
        assert on_meta(module, (given,), {}).shape == (3, 4)
        assert module.balance.is_meta
        assert module.router.loss.is_meta
        assert module.router.loss.shape == ()


class _Weighed(nn.Module):
    """Adds what it weighs in float32 into float32, as if nothing were wider."""

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        shares = tokens.type(torch.float32).sigmoid()
        total = torch.zeros_like(shares)
        total.index_add_(0, torch.arange(len(tokens)), tokens * shares)
        return total.type(tokens.dtype), shares


def test_float64_and_float32_in_one() -> None:
    tokens = torch.zeros(7, 3, dtype=torch.float64)
    assert template(_Weighed(), (tokens,), {}, 7) == ("Tx3", "Tx3_float32")
    total, shares = on_meta(_Weighed(), (tokens.to("meta"),), {})
    assert (total.dtype, shares.dtype) == (torch.float64, torch.float32)
    with pytest.raises(RuntimeError):
        on_meta(nn.Linear(4, 4), (torch.zeros(7, 3, device="meta"),), {})
