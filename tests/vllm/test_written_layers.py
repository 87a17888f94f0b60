"""Attention as written over vLLM's pages: masks of each sequence's own length, choices from layer to layer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from hfspeed.plan import History
from hfspeed.recurrences.written import write, written_of

CHOSEN, WINDOW = 6, 9


class Sparse(nn.Module):
    """Attends to the few tokens that it, or the layer before it, chose; configured by somebody else."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.queries, self.keys = nn.Linear(8, 8).double(), nn.Linear(8, 8).double()

    def forward(self, flow: torch.Tensor, mask: Any = None, earlier: torch.Tensor | None = None) -> Any:
        """``[1, tokens, 8]`` to the same, weights, and what was chosen."""
        assert self.config._attn_implementation == "eager"
        scores = self.queries(flow) @ self.keys(flow).mT + mask[:, 0]
        if earlier is None:
            earlier = scores.topk(min(CHOSEN, flow.shape[1]), -1).indices.to(torch.int32)
        seen = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, earlier.long(), value=True)
        weights = scores.masked_fill(~seen, torch.finfo(scores.dtype).min).softmax(-1)
        return weights @ flow, weights, earlier


@pytest.fixture
def layers(monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], list[Any], Any]:
    """Two layers as their author wrote them, the same over pages, and where a step says what is scheduled."""
    from vllm.config import VllmConfig, set_current_vllm_config

    from hfspeed.vllm import states as pages
    from hfspeed.vllm.layers.history import Remembering
    from hfspeed.vllm.states import States

    torch.manual_seed(0)
    config = SimpleNamespace(_attn_implementation="ours", _attn_implementation_internal="ours")
    told, masks = f"1xTx~{CHOSEN}_int32", (f"mask:window:{WINDOW}",)
    holders, authors, ours = {}, [], []
    for number, inputs in enumerate((("1xTx8",), ("1xTx8", told))):
        op = History(f"m{number}", inputs, ("1xTx8", "none", told), masks, eager=True)
        module = Sparse(config)
        write(module, written_of(op.masks, op.inputs))
        with set_current_vllm_config(VllmConfig()):
            holder = holders[f"layer{number}.states"] = States(f"layer{number}.states")
        ours.append(Remembering(op, module.forward, holder, 40))
        holder.kv_cache = (torch.randint(-128, 127, (5, holder.bytes), dtype=torch.int8),)
        authors.append(module)
    context = SimpleNamespace(no_compile_layers=holders, attn_metadata=None)
    monkeypatch.setattr(pages, "get_forward_context", lambda: context)
    return authors, ours, context


def test_two_layers_in_pieces(layers: tuple[list[Any], list[Any], Any], scheduled: Any) -> None:
    authors, ours, context = layers
    x = torch.randn(2, 1, 40, 8, dtype=torch.float64)
    wanted = []
    for one in x:
        flow, _, chosen = authors[0](one)
        wanted.append(authors[1](flow, earlier=chosen)[0])
    steps = [{0: (0, 4)}, {0: (4, 5), 1: (0, 30)}, {0: (5, 6), 1: (30, 31)}, {1: (31, 40), 0: (6, 20)}, {0: (0, 3)}]
    for step in steps:
        rows = sorted(step.items(), key=lambda item: item[1][1] - item[1][0] > 1 or item[1][0] == 0)
        singles = [1 + n for n, (start, stop) in rows if stop - start == 1 and start]
        pieces = [(1 + n, stop - start, start > 0) for n, (start, stop) in rows[len(singles) :]]
        context.attn_metadata = dict.fromkeys(context.no_compile_layers, scheduled.metadata(singles, pieces))
        row = torch.cat([*(x[n][:, start:stop] for n, (start, stop) in rows), x[0][:, :2]], 1)  # and padding
        flow, weights, chosen = ours[0](row)
        assert weights is None
        assert chosen.shape == (1, row.shape[1], CHOSEN)
        found, at = ours[1](flow, earlier=chosen)[0], 0
        for n, (start, stop) in rows:
            torch.testing.assert_close(found[:, at : at + stop - start], wanted[n][:, start:stop])
            at += stop - start


def test_it_is_tried_before_there_are_pages(layers: tuple[list[Any], list[Any], Any]) -> None:
    """More tokens than a sequence may have are tried one piece after the other."""
    _, ours, context = layers
    context.attn_metadata = None
    flow, _, chosen = ours[0](torch.randn(1, 93, 8, dtype=torch.float64))
    assert (flow.shape, chosen.shape) == ((1, 93, 8), (1, 93, CHOSEN))
