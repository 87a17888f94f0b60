"""The configuration of this folder's model."""

from transformers import PretrainedConfig


class ShoalConfig(PretrainedConfig):
    model_type = "shoal"

    def __init__(
        self,
        vocab_size=384,
        hidden_size=96,
        intermediate_size=160,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        rank=48,
        rope_d=16,
        **kwargs,
    ):
        self.vocab_size, self.hidden_size, self.intermediate_size = vocab_size, hidden_size, intermediate_size
        self.num_hidden_layers, self.num_attention_heads = num_hidden_layers, num_attention_heads
        self.num_key_value_heads, self.head_dim = num_key_value_heads, head_dim
        self.max_position_embeddings, self.rms_norm_eps, self.rope_theta = (
            max_position_embeddings,
            rms_norm_eps,
            rope_theta,
        )
        self.rank = rank
        self.rope_d = rope_d
        super().__init__(**kwargs)
