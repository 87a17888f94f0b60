"""Tensors that a block holds for its heads go over ranks with them, and so do norms that mix all heads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaAttention, apply_rotary_pos_emb

from hfspeed.plan import Attention, Keep, Plan, Share
from hfspeed.planner.decide import decide
from hfspeed.planner.load import Subject

SIZES: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 128,
    "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip


class Long(nn.Module):
    """Every vector gets length one; nothing to learn."""

    def forward(self, flow: torch.Tensor) -> torch.Tensor:
        """``[..., size]`` to the same."""
        return flow / flow.norm(dim=-1, keepdim=True)


class Own(LlamaAttention):
    """Llama's attention with something done to what lies between its projections."""

    def __init__(self, config: LlamaConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        self.add()

    def add(self) -> None:
        """Tensors of one's own."""

    def turned(self, query: torch.Tensor) -> torch.Tensor:
        """``[batch, heads, tokens, size]`` to the same."""
        return query

    def done(self, flow: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens, heads, size]`` to what the last projection reads."""
        return flow.flatten(2)

    def forward(self, hidden_states: torch.Tensor, position_embeddings: Any, attention_mask: Any, **kwargs: Any) -> Any:
        """As Llama's."""
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        query, key, value = (one(hidden_states).view(shape).transpose(1, 2) for one in self.three())
        query, key = apply_rotary_pos_emb(query, key, *position_embeddings)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, None)
        flow, _ = attend(self, self.turned(query), key, value, attention_mask, scaling=self.scaling, **kwargs)
        return self.o_proj(self.done(flow, hidden_states)), None

    def three(self) -> tuple[nn.Module, ...]:
        """The projections."""
        return self.q_proj, self.k_proj, self.v_proj


class PerHead(Own):
    """A bias for each head in the gate behind attention."""

    def add(self) -> None:
        self.gate = nn.Linear(64, 64, bias=False)
        self.lift = nn.Parameter(torch.zeros(4))

    def done(self, flow: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        return (flow * (self.gate(hidden).view_as(flow) + self.lift[None, None, :, None]).sigmoid()).flatten(2)


class PerChannel(Own):
    """A factor for each channel of each head, cut into heads by a view."""

    def add(self) -> None:
        self.factor = nn.Parameter(torch.ones(64))

    def turned(self, query: torch.Tensor) -> torch.Tensor:
        return query * self.factor.view(-1, 1, self.head_dim).square()


class Computed(Own):
    """Numbers for each head that the constructor computes."""

    def add(self) -> None:
        self.register_buffer("slopes", torch.arange(1.0, 5.0).view(4, 1, 1), persistent=False)

    def turned(self, query: torch.Tensor) -> torch.Tensor:
        return query / self.slopes


class Mixed(Own):
    """A norm without weights over all heads together."""

    def add(self) -> None:
        self.norm = Long()

    def done(self, flow: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        return self.norm(flow.flatten(2))


class Alike(Own):
    """As many channels in a head as there are heads, and a factor for each channel: it stays whole."""

    def add(self) -> None:
        self.factor = nn.Parameter(torch.ones(self.head_dim))

    def turned(self, query: torch.Tensor) -> torch.Tensor:
        return query * self.factor


def planned(attention: type[Own], **values: Any) -> Plan:
    """The plan of a small model with this attention."""
    torch.set_num_threads(1)

    class OwnForCausalLM(LlamaForCausalLM):
        def __init__(self, config: LlamaConfig) -> None:
            super().__init__(config)
            for number, layer in enumerate(self.model.layers):
                layer.self_attn = attention(config, number)

    return decide(Subject("own", None, LlamaConfig(**SIZES | values), OwnForCausalLM, None))


@pytest.mark.parametrize(
    ("attention", "shares"),
    [(PerHead, {"lift": 4}), (PerChannel, {"factor": 4}), (Computed, {"slopes": 4}), (Mixed, {})],
)
def test_each_rank_has_its_part(attention: type[Own], shares: dict[str, int]) -> None:
    plan = planned(attention)
    assert all(op.split for op in plan.ops if isinstance(op, Attention))
    found = {op.path.rpartition(".")[2]: op.segments[0][1] for op in plan.ops if isinstance(op, Share)}
    assert found == shares
    gathered = {op.path.rpartition(".")[2] for op in plan.ops if isinstance(op, Keep) and op.units}
    assert gathered == ({"norm"} if attention is Mixed else set())


def test_a_tensor_that_all_heads_use_stays_whole() -> None:
    plan = planned(Alike, head_dim=4, num_key_value_heads=4, hidden_size=16)
    assert all(op.split for op in plan.ops if isinstance(op, Attention))
    assert not any(isinstance(op, Share) for op in plan.ops)


def test_a_saved_buffer_is_no_part_of_a_share() -> None:
    class Saved(Computed):
        """The same numbers, from the checkpoint."""

        def add(self) -> None:
            self.register_buffer("slopes", torch.arange(1.0, 5.0).view(4, 1, 1))

    plan = planned(Saved)
    assert not any(op.split for op in plan.ops if isinstance(op, Attention))
    assert any("shares do not add up" in refusal.found for refusal in plan.refusals)
