"""Attention through the interface that no kernel computes runs as written, with masks as transformers makes them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, masking_utils
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama import modeling_llama
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaDecoderLayer, LlamaModel

from hfspeed.errors import RefusedError
from hfspeed.plan import Attention, History, Plan
from hfspeed.planner.decide import decide, small_plan
from hfspeed.planner.load import Subject

CHOSEN = 16
SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 128,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "index_topk": CHOSEN,
    "reach": 300,
}


def eager(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    bias: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """An author's own attention, with a bias of scores; ``module`` is none of its business."""
    assert isinstance(module, nn.Module)
    scores = query @ key.mT * scaling
    scores = scores if bias is None else scores + bias
    scores = scores if attention_mask is None else scores + attention_mask
    weights = scores.softmax(-1)
    return (weights @ value).transpose(1, 2).contiguous(), weights


class Biased(LlamaAttention):
    """Scores get a learned function of the token that asks and of the distance."""

    window: int | None = None

    def __init__(self, config: LlamaConfig, number: int) -> None:
        super().__init__(config, number)
        self.near = nn.Linear(64, 4)

    def heads(self, flow: torch.Tensor) -> list[torch.Tensor]:
        """Query, key and value, ``[batch, heads, tokens, 16]``."""
        return [p(flow).unflatten(-1, (4, 16)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj)]

    def bias(self, flow: torch.Tensor) -> torch.Tensor:
        """``[batch, heads, tokens, tokens]``."""
        at = torch.arange(flow.shape[1], device=flow.device)
        return self.near(flow).mT.unsqueeze(-1) / (1 + (at[:, None] - at).abs())

    def attend(self, flow: torch.Tensor, mask: Any, **more: Any) -> torch.Tensor:
        """The interface, and the last projection."""
        asked = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager)
        found, _ = asked(self, *self.heads(flow), mask, scaling=0.25, **more)
        return self.o_proj(found.flatten(2))

    def forward(self, hidden_states: torch.Tensor, attention_mask: Any = None, **_: Any) -> Any:
        """As Llama's."""
        return self.attend(hidden_states, attention_mask, bias=self.bias(hidden_states)), None


class Reaching(Biased):
    """A bias for each distance, up to a number of the configuration."""

    def __init__(self, config: LlamaConfig, number: int) -> None:
        super().__init__(config, number)
        self.table = nn.Parameter(torch.zeros(4, config.reach))

    def bias(self, flow: torch.Tensor) -> torch.Tensor:
        """``[heads, tokens, tokens]``."""
        at = torch.arange(flow.shape[1], device=flow.device)
        return self.table[:, (at[:, None] - at).clamp(0, self.config.reach - 1)]


class Sparse(Biased):
    """Tokens attend to the few that an index of scores chooses; of later ones none, by the mask."""

    masked = True
    fixed = 0

    def chosen(self, flow: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens, chosen]``."""
        scores = self.near(flow) @ self.near(flow).mT
        scores = scores + mask[:, 0] if self.masked else scores
        return scores.topk(min(self.fixed or self.config.index_topk, scores.shape[-1]), -1).indices.to(torch.int32)

    def seen(self, chosen: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The mask, which hides what was not chosen as well."""
        hidden = torch.ones_like(mask[:, 0], dtype=torch.bool).scatter(-1, chosen.long(), value=False)
        return mask.masked_fill(hidden.unsqueeze(1), torch.finfo(mask.dtype).min)

    def forward(self, hidden_states: torch.Tensor, attention_mask: Any = None, **_: Any) -> Any:
        """As Llama's."""
        chosen = self.chosen(hidden_states, attention_mask)
        return self.attend(hidden_states, self.seen(chosen, attention_mask)), None


class Blind(Sparse):
    """The index takes later tokens into account, which shows where there are more than it chooses."""

    masked = False


class Many(Sparse):
    """The number is none of the configuration, and larger than any prompt of a proof."""

    fixed = 600


class ManyBlind(Many):
    """The same, and blind."""

    masked = False


class Sharing(Sparse):
    """Every layer but the first attends to what the one before it chose."""

    def forward(self, flow: torch.Tensor, mask: Any, earlier: torch.Tensor | None) -> Any:  # type: ignore[override]
        """The flow, and what was chosen."""
        chosen = self.chosen(flow, mask) if earlier is None else earlier
        return self.attend(flow, self.seen(chosen, mask)), chosen


class SharingLayer(LlamaDecoderLayer):
    """Hands on what was chosen."""

    def forward(self, flow: torch.Tensor, mask: Any, earlier: torch.Tensor | None) -> Any:  # type: ignore[override]
        """The flow, and what was chosen."""
        found, chosen = self.self_attn(self.input_layernorm(flow), mask, earlier)
        flow = flow + found
        return flow + self.mlp(self.post_attention_layernorm(flow)), chosen


class SharingModel(LlamaModel):
    """What was chosen goes from layer to layer."""

    def forward(  # type: ignore[override]
        self, input_ids: Any = None, position_ids: Any = None, inputs_embeds: Any = None, **_: Any
    ) -> BaseModelOutputWithPast:
        """As Llama's."""
        flow = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        given = {"attention_mask": None, "past_key_values": None, "position_ids": position_ids}
        mask = masking_utils.create_causal_mask(config=self.config, inputs_embeds=flow, **given)
        chosen = None
        for layer in self.layers:
            flow, chosen = layer(flow, mask, chosen)
        return BaseModelOutputWithPast(last_hidden_state=self.norm(flow))


def model_of(attention: type[Biased], layer: type[LlamaDecoderLayer] = LlamaDecoderLayer) -> type[LlamaForCausalLM]:
    """Llama with another attention."""

    class OwnForCausalLM(LlamaForCausalLM):
        _supports_sdpa = False  # of which masks may be left out

        def __init__(self, config: LlamaConfig) -> None:
            super().__init__(config)
            if layer is SharingLayer:
                self.model = SharingModel(config)
            for number in range(config.num_hidden_layers):
                self.model.layers[number] = layer(config, number)
                self.model.layers[number].self_attn = attention(config, number)
            self.post_init()

    return OwnForCausalLM


def subject(model: type[LlamaForCausalLM]) -> Subject:
    """A model as a user would hand it over."""
    torch.set_num_threads(1)
    return Subject("own", None, LlamaConfig(**SIZES), model, None)


def histories(plan: Plan) -> list[History]:
    """The ops of a plan that run on whole sequences."""
    return [op for op in plan.ops if isinstance(op, History)]


@pytest.mark.parametrize("attention", [Biased, Sparse])
def test_it_runs_on_whole_sequences_with_masks_made_for_them(attention: type[Biased]) -> None:
    plan = decide(subject(model_of(attention)))
    assert [(op.path, op.masks, op.eager) for op in histories(plan)] == [
        (f"model.layers.{number}.self_attn", ("attention_mask",), True) for number in range(3)
    ]
    assert plan.proofs
    assert any(no.wanted == "paged attention" for no in plan.refusals)
    assert not any(isinstance(op, Attention) for op in plan.ops)


def test_an_index_that_chooses_more_than_a_prompt_has_is_tried_on_longer_ones() -> None:
    _, small = small_plan(subject(model_of(Sparse)))
    assert small.model.config.index_topk == 8
    assert {count for how in small.written.values() for count in how.counts} == set()  # of 8 no prompt has less


@pytest.mark.parametrize("attention", [Blind, ManyBlind])
def test_an_index_that_lets_later_tokens_matter_is_refused(attention: type[Biased]) -> None:
    with pytest.raises(RefusedError):
        decide(subject(model_of(attention)))


def test_an_index_of_a_fixed_number_is_run_on_more_tokens() -> None:
    plan, small = small_plan(subject(model_of(Many)))
    assert len(histories(plan)) == len(small.written)
    assert {count for how in small.written.values() for count in how.counts} == {600}


def test_what_one_layer_chose_is_handed_to_the_next() -> None:
    plan = decide(subject(model_of(Sharing, SharingLayer)))
    first, second, _ = histories(plan)
    told = f"1xTx~{CHOSEN}_int32"
    assert told not in first.inputs
    assert told in first.gives
    assert told in second.inputs


@pytest.mark.parametrize(("attention", "window"), [(Biased, 6), (Biased, 400), (Reaching, 300)])
def test_windows_that_only_masks_say_are_kept(attention: type[Biased], window: int) -> None:
    """One is the size of a tensor too, so that a narrow model has a smaller one."""

    def made(**keywords: Any) -> Any:
        own = keywords["config"] = deepcopy(keywords["config"])
        own.sliding_window = own.reach if attention is Reaching else window
        return masking_utils.create_sliding_window_causal_mask(**keywords)

    with patch.object(modeling_llama, "create_causal_mask", made):
        plan = decide(subject(model_of(attention)))
    assert {op.masks for op in histories(plan)} == {(f"attention_mask:window:{window}",)}


def test_an_attention_that_others_compute_otherwise_is_refused() -> None:
    """Without a word of the author's transformers takes another function, which does not know of the bias."""
    model = model_of(Biased)
    model._supports_sdpa = True
    with pytest.raises(RefusedError, match="bias"):
        decide(subject(model))


def test_a_mask_of_no_known_kind_is_refused() -> None:
    def made(**keywords: Any) -> Any:
        def odd(batch: Any, head: Any, query: Any, key: Any) -> Any:
            return (query - key + 0 * batch + 0 * head) % 5 != 3

        return masking_utils.create_causal_mask(**keywords, and_mask_function=odd)

    with patch.object(modeling_llama, "create_causal_mask", made), pytest.raises(RefusedError, match="bias"):
        decide(subject(model_of(Biased)))
