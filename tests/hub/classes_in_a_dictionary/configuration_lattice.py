"""The sizes of a Lattice model."""

from transformers import PretrainedConfig


class LatticeConfig(PretrainedConfig):
    model_type = "lattice"
    keys_to_ignore_at_inference = ["past_key_values"]

    def __init__(
        self, hidden_size=256, intermediate_size=640, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=None, vocab_size=1024, max_position_embeddings=512, rope_theta=10000.0, rms_norm_eps=1e-6,
        **others,
    ):  # fmt: skip
        self.hidden_size, self.intermediate_size, self.vocab_size = hidden_size, intermediate_size, vocab_size
        self.num_attention_heads, self.num_hidden_layers = num_attention_heads, num_hidden_layers
        self.num_key_value_heads = num_attention_heads if num_key_value_heads is None else num_key_value_heads
        self.max_position_embeddings = max_position_embeddings
        self.rope_theta, self.rms_norm_eps = rope_theta, rms_norm_eps
        super().__init__(**others)
