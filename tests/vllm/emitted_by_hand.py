"""LlamaForCausalLM as hfspeed serves it; written by hand, so that the vLLM part is tested by itself."""

from __future__ import annotations

from transformers.models.llama import modeling_llama as author
from transformers.models.llama.modeling_llama import (
    ALL_ATTENTION_FUNCTIONS,
    BaseModelOutputWithPast,
    apply_rotary_pos_emb,
    capture_outputs,
    create_causal_mask,
    eager_attention_forward,
    merge_with_config_defaults,
)


class LlamaAttention(author.LlamaAttention):
    """q_proj + k_proj + v_proj -> qkv_proj."""

    def forward(self, hidden_states, position_embeddings=None, attention_mask=None, past_key_values=None, **kwargs):
        input_shape = hidden_states.shape[:-1]
        hidden_shape = (*input_shape, -1, self.head_dim)
        q_proj, k_proj, v_proj = self.qkv_proj(hidden_states).split(self.qkv_proj_sizes, dim=-1)
        query_states = q_proj.view(hidden_shape).transpose(1, 2)
        key_states = k_proj.view(hidden_shape).transpose(1, 2)
        value_states = v_proj.view(hidden_shape).transpose(1, 2)
        cos, sin = position_embeddings
        query_states, key_states = apply_rotary_pos_emb(query_states, key_states, cos, sin)
        interface = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        attn_output, attn_weights = interface(
            self,
            query_states,
            key_states,
            value_states,
            attention_mask,
            dropout=0.0 if not self.training else self.attention_dropout,
            scaling=self.scaling,
            **kwargs,
        )
        attn_output = attn_output.reshape(*input_shape, -1).contiguous()
        return self.o_proj(attn_output), attn_weights


class LlamaMLP(author.LlamaMLP):
    """gate_proj + up_proj -> gate_up_proj; act_fn(gate) * up -> act_and_mul."""

    def forward(self, x):
        return self.down_proj(self.act_and_mul(self.gate_up_proj(x)))


class LlamaModel(author.LlamaModel):
    """Stages may be cut between the layers."""

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values=None,
        inputs_embeds=None,
        use_cache=None,
        intermediate=None,
        **kwargs,
    ):
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        causal_mask = create_causal_mask(
            config=self.config,
            inputs_embeds=inputs_embeds,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            position_ids=position_ids,
        )
        hidden_states = inputs_embeds
        position_embeddings = self.rotary_emb(hidden_states, position_ids=position_ids)
        if intermediate is not None:
            hidden_states = intermediate
        for decoder_layer in self.layers[: self.config.num_hidden_layers]:
            hidden_states = decoder_layer(
                hidden_states,
                attention_mask=causal_mask,
                position_embeddings=position_embeddings,
                position_ids=position_ids,
                past_key_values=past_key_values,
                use_cache=use_cache,
                **kwargs,
            )
        if self.hands_on:
            return hidden_states
        hidden_states = self.norm(hidden_states)
        return BaseModelOutputWithPast(last_hidden_state=hidden_states, past_key_values=past_key_values)
