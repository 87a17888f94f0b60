"""The configuration of this folder's model."""

from transformers import PretrainedConfig


class QuarryConfig(PretrainedConfig):
    model_type = "quarry"

    def __init__(
        self, vocab_size=92544, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=32768, rms_norm_eps=1e-5,
        rope_base=1000000, rope_ntk=1.0, **kwargs,
    ):  # fmt: skip
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.num_key_value_heads = num_key_value_heads
        self.max_position_embeddings = max_position_embeddings
        self.rms_norm_eps = rms_norm_eps
        self.rope_base = rope_base
        self.rope_ntk = rope_ntk
        super().__init__(**kwargs)
