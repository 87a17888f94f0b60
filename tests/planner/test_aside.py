"""Attention over what earlier layers gave is no attention over tokens; attention by hand is run as it is."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, ClassVar
from unittest.mock import patch

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, masking_utils
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama import modeling_llama
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaDecoderLayer

from hfspeed.errors import RefusedError
from hfspeed.plan import Attention, History, Plan
from hfspeed.planner.decide import decide
from hfspeed.planner.load import Subject
from hfspeed.refusal import Reason

CONFIG = LlamaConfig(
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=3,
    num_attention_heads=4,
    vocab_size=128,
    num_key_value_heads=4,
    head_dim=16,
)


class Depth(nn.Module):
    """A token chooses among what layers made of it."""

    is_causal = False
    more: ClassVar[dict[str, Any]] = {}

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.config = config
        self.ask = nn.Linear(64, 16, bias=False)
        self.tell = nn.Linear(64, 16, bias=False)

    def forward(self, flow: torch.Tensor, seen: list[torch.Tensor]) -> torch.Tensor:
        """``[batch, tokens, 64]`` and a list of such to the same."""
        others = torch.stack(seen, 2)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, None)
        found, _ = attend(self, self.ask(flow).unsqueeze(2), self.tell(others), others, None, scaling=0.25, **self.more)
        return found.transpose(1, 2).squeeze(2)


class Looking(LlamaDecoderLayer):
    """A layer that looks back."""

    def __init__(self, config: LlamaConfig, number: int, seen: list[torch.Tensor]) -> None:
        super().__init__(config, number)
        self.number, self.seen, self.depth = number, seen, Depth(config)

    def forward(self, hidden_states: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """As Llama's, with a look at all states so far."""
        if self.number == 0:
            self.seen.clear()
        self.seen.append(hidden_states)
        return super().forward(self.depth(hidden_states, self.seen), **kwargs)


def planned(layer: Any) -> Plan:
    """The plan of a small Llama with other layers."""
    torch.set_num_threads(1)

    class OwnForCausalLM(LlamaForCausalLM):
        def __init__(self, config: LlamaConfig) -> None:
            super().__init__(config)
            seen: list[torch.Tensor] = []
            self.model.layers = nn.ModuleList([layer(config, number, seen) for number in range(3)])

    return decide(Subject("own", None, CONFIG, OwnForCausalLM, None))


def test_attention_over_layers_stays_as_written() -> None:
    plan = planned(Looking)
    assert [op.path for op in plan.ops if isinstance(op, Attention)] == [
        f"model.layers.{n}.self_attn" for n in range(3)
    ]
    assert plan.proofs


class Dropping(Depth):
    """The same, with a dropout that acts whether one trains or not."""

    more: ClassVar[dict[str, Any]] = {"dropout": 0.1}


class LookingElse(Looking):
    """A layer with that."""

    def __init__(self, config: LlamaConfig, number: int, seen: list[torch.Tensor]) -> None:
        super().__init__(config, number, seen)
        self.depth = Dropping(config)


def test_a_keyword_that_acts_is_not_dropped_there() -> None:
    with pytest.raises(RefusedError, match="attention is not causal"):
        planned(LookingElse)


class ByHand(LlamaAttention):
    """Weights that no softmax makes."""

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> Any:
        """As Llama's."""
        query, key, value = (
            one(hidden_states).unflatten(-1, (4, 16)).transpose(1, 2) for one in (self.q_proj, self.k_proj, self.v_proj)
        )
        flow = self.weights(query @ key.mT) @ value
        return self.o_proj(flow.transpose(1, 2).flatten(2)), None

    def weights(self, scores: torch.Tensor) -> torch.Tensor:
        """``[batch, heads, tokens, tokens]`` to the same."""
        return scores.exp().tril() / (1 + scores.exp().tril().sum(-1, keepdim=True))


class Sink(ByHand):
    """Scores with a column that nobody attends to."""

    def __init__(self, config: LlamaConfig, number: int) -> None:
        super().__init__(config, number)
        self.sink = nn.Parameter(torch.zeros(4))

    def weights(self, scores: torch.Tensor) -> torch.Tensor:
        """The same."""
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        column = self.sink.view(1, -1, 1, 1).expand(scores.shape[0], -1, scores.shape[2], 1)
        return torch.cat([scores.masked_fill(later, float("-inf")), column], -1).softmax(-1)[..., :-1]


class NotCausal(ByHand):
    """Every token sees all."""

    def weights(self, scores: torch.Tensor) -> torch.Tensor:
        """The same."""
        return scores.exp() / (1 + scores.exp().sum(-1, keepdim=True))


def of(attention: type[ByHand]) -> Any:
    """Llama's layer with another attention."""

    def layer(config: LlamaConfig, number: int, _: Any) -> LlamaDecoderLayer:
        made = LlamaDecoderLayer(config, number)
        made.self_attn = attention(config, number)
        return made

    return layer


@pytest.mark.parametrize("attention", [ByHand, Sink])
def test_causal_attention_that_no_kernel_knows_runs_on_whole_sequences(attention: type[ByHand]) -> None:
    plan = planned(of(attention))
    assert [op.path for op in plan.ops if isinstance(op, History)] == [f"model.layers.{n}.self_attn" for n in range(3)]
    assert any(no.reason is Reason.NO_KERNEL for no in plan.refusals)


class Given(ByHand):
    """Its own mask, and what transformers makes."""

    def forward(self, hidden_states: torch.Tensor, attention_mask: Any = None, **_: Any) -> Any:
        """As Llama's."""
        self.mask = attention_mask
        return super().forward(hidden_states)

    def weights(self, scores: torch.Tensor) -> torch.Tensor:
        """The same."""
        scores = scores if self.mask is None else scores + self.mask.clamp(min=-1e3)
        return super().weights(scores)


@pytest.mark.parametrize("window", [0, 400])
def test_a_mask_that_hides_more_is_not_lost(window: int) -> None:
    def made(**keywords: Any) -> Any:
        function = masking_utils.create_sliding_window_causal_mask if window else masking_utils.create_causal_mask
        keywords["config"] = deepcopy(keywords["config"])
        keywords["config"].sliding_window = window
        return function(**keywords)

    with patch.object(modeling_llama, "create_causal_mask", made):
        plan = planned(of(Given))
    masks = {op.masks for op in plan.ops if isinstance(op, History)}
    assert masks == {(f"attention_mask:window:{window}",) if window else ()}


def test_what_is_nearly_attention_is_told_at_its_line() -> None:
    with pytest.raises(RefusedError) as refused:
        planned(of(NotCausal))
    no = refused.value.refusals[0]
    assert no.reason is Reason.NO_INTERFACE
    assert "no softmax attention" in no.found
    assert no.place is not None
    assert no.place.file == __file__
