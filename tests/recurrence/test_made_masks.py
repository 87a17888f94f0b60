"""Masks that are made for whole sequences are those of transformers, and modules ask for them by name."""

from __future__ import annotations

from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import LlamaConfig
from transformers.masking_utils import (
    create_causal_mask,
    create_chunked_causal_mask,
    create_sliding_window_causal_mask,
)

from hfspeed.errors import PlanError
from hfspeed.plan import History
from hfspeed.recurrences.history import Inputs, joined, most, width
from hfspeed.recurrences.written import WRITTEN, Mask, mask_of, write, written_of

KINDS = {
    "mask": create_causal_mask,
    "mask:window:3": create_sliding_window_causal_mask,
    "mask:chunk:4": create_chunked_causal_mask,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("told", KINDS)
def test_they_are_those_of_transformers(told: str, dtype: torch.dtype) -> None:
    config = LlamaConfig(sliding_window=3, attention_chunk_size=4, attn_implementation="eager")
    flow = torch.zeros(2, 11, 8, dtype=dtype)
    given: dict[str, Any] = {"attention_mask": None, "past_key_values": None}
    wanted = KINDS[told](config=config, inputs_embeds=flow, **given)
    made = mask_of(told).made(11, 2, flow)
    assert made.dtype is wanted.dtype
    assert torch.equal(made, wanted)
    assert str(mask_of(told)) == told


def test_what_is_no_mask_is_told() -> None:
    assert torch.equal(Mask("far", "distance").made(3, 1, torch.zeros(1))[2], torch.tensor([2, 1, 0]))
    for odd in ("mask:window", "mask:window:some", "mask:odd:3"):
        with pytest.raises(PlanError, match="no mask"):
            mask_of(odd)
    with pytest.raises(PlanError, match="counts tokens"):
        _ = written_of(["mask"], ["none", "1xT_int64"]).at


class Asking(nn.Module):
    """Gives back what it is asked with."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(_attn_implementation="ours", _attn_implementation_internal="ours")

    def forward(self, flow: torch.Tensor, mask: Any = None, far: Any = None) -> Any:
        """All but the flow."""
        return flow, mask, far, self.config._attn_implementation


def test_a_module_gets_masks_of_its_own_length_and_a_configuration_of_its_own() -> None:
    module, other = Asking(), Asking()
    other.config = module.config
    write(module, written_of(["mask:window:2", "far:distance"], ["1xTx4", "none"]))
    copied = deepcopy(module)
    for one in (module, copied):
        _, mask, far, asked = one(torch.zeros(1, 5, 4), far=torch.zeros(9, 9))
        assert mask.shape == (1, 1, 5, 5)
        assert far.shape == (5, 5)
        assert asked == "eager"
    own = torch.ones(1, 1, 5, 5)
    assert module(torch.zeros(1, 5, 4), own)[1] is own
    assert module(torch.zeros(1, 1, 4), far=torch.zeros(1, 7))[2].shape == (1, 7)
    assert getattr(copied, WRITTEN)
    assert other(torch.zeros(1, 5, 4))[-1] == "ours"
    assert copied(torch.zeros(1, 3, 4))[0].shape == (1, 3, 4)


def test_as_many_tokens_as_there_are_up_to_so_many() -> None:
    told = "1xTx~4_int32"
    assert (most(told), most("1xTx4"), width(told)) == (4, 0, 4)
    op = History("m", ("1xTx2", told), ("1xTx2", told))
    flow, chosen = torch.randn(1, 3, 2), torch.tensor([[[0, 0, 0, 0], [1, 0, 1, 1], [2, 0, 1, 2]]], dtype=torch.int32)
    seen = []

    def forward(flow: torch.Tensor, chosen: torch.Tensor) -> Any:
        seen.append(chosen)
        return flow, chosen

    out = joined(op, [Inputs(op, (flow, chosen), {}).run(forward, [flow, chosen], 2)])
    assert seen[0].shape == (1, 3, 3)  # of three tokens
    assert out[1].tolist() == [[[1, 0, 1, 1], [2, 0, 1, 2]]]  # four columns again, the last one the first
