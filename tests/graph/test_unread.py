"""What nobody reads is no output, and a value asked for its dtype alone is no input."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from hfspeed.graph.flow import behind
from hfspeed.graph.record import Recording, record
from hfspeed.graph.unread import forget_unread, read_of


@dataclass
class Out:
    logits: torch.Tensor
    cache: list[torch.Tensor]


class Table(nn.Module):
    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """One value of the dtype of ``x`` for each position."""
        return positions.to(x.dtype)


class Keeps(nn.Module):
    """Gives its keys for a cache beside its result."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Linear(4, 4)
        self.table = Table()

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """``[tokens, 4]`` to the same, with two of them."""
        keys = self.keys(x)
        return x * self.table(keys, positions)[:, None], (keys, x + 1)


class Root(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Keeps()

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> Out:
        """Logits, and what was kept."""
        result, kept = self.inner(x, positions)
        return Out(result + kept[1], list(kept))


def recorded() -> Recording:
    given = {"x": torch.zeros(3, 4), "positions": torch.arange(3)}
    found = record(Root(), given)
    forget_unread(found)
    return found


def test_what_nobody_reads_is_no_output() -> None:
    result, (keys, other) = recorded().calls["inner"].graph.output_node().args[0]
    assert keys is None
    assert result is not None
    assert other is not None


def test_what_is_compared_of_a_result_is_what_is_read() -> None:
    graph = recorded().calls["inner"].graph
    one, two, three = torch.zeros(1), torch.zeros(2), torch.zeros(3)
    assert read_of(graph, (one, (two, three))) == [one, [None, three]]


def test_a_value_asked_for_its_dtype_is_no_input() -> None:
    graph = recorded().calls["inner"].graph
    called = {str(node.target): node for node in graph.nodes if node.op == "call_module"}
    assert called["inner.keys"] in called["inner.table"].all_input_nodes
    assert called["inner.keys"] not in behind(called["inner.table"])
