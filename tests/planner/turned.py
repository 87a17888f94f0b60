"""Phi-3 with its packed projections in other orders: value, key, query; and every second row is the gate."""

from __future__ import annotations

from transformers.models.phi3.modeling_phi3 import (
    ALL_ATTENTION_FUNCTIONS,
    Phi3Attention,
    Phi3ForCausalLM,
    Phi3MLP,
    apply_rotary_pos_emb,
    eager_attention_forward,
)


class TurnedAttention(Phi3Attention):
    def forward(self, hidden_states, position_embeddings, attention_mask, past_key_values=None, **kwargs):
        shape = hidden_states.shape[:-1]
        packed = self.qkv_proj(hidden_states)
        own = self.num_key_value_heads * self.head_dim
        value, key, query = packed.split([own, own, self.config.num_attention_heads * self.head_dim], dim=-1)
        query, key, value = (one.view(*shape, -1, self.head_dim).transpose(1, 2) for one in (query, key, value))
        query, key = apply_rotary_pos_emb(query, key, *position_embeddings)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        out, weights = attend(self, query, key, value, attention_mask, dropout=0.0, scaling=self.scaling, **kwargs)
        return self.o_proj(out.reshape(*shape, -1).contiguous()), weights


class TurnedMLP(Phi3MLP):
    def forward(self, hidden_states):
        both = self.gate_up_proj(hidden_states)
        return self.down_proj(both[..., ::2] * self.activation_fn(both[..., 1::2]))


class TurnedForCausalLM(Phi3ForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        for number, layer in enumerate(self.model.layers):
            layer.self_attn = TurnedAttention(config, number)
            layer.mlp = TurnedMLP(config)
        self.post_init()
