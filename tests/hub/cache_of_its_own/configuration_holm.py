"""The sizes of a Holm model, and how its positions are stretched."""

from transformers import PretrainedConfig

STRETCHED = ("linear", "dynamic")


class HolmConfig(PretrainedConfig):
    model_type = "holm"

    def __init__(
        self, hidden_size=256, intermediate_size=640, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, vocab_size=1024, max_position_embeddings=512, rope_theta=10000.0, rope_scaling=None,
        rms_norm_eps=1e-5, bias=False, use_cache=True, attn_implementation="eager", **others,
    ):  # fmt: skip
        if rope_scaling is not None and rope_scaling["type"] not in STRETCHED:
            raise ValueError(
                f"positions are stretched in one of the ways {STRETCHED}, and not {rope_scaling['type']!r}"
            )
        self.rope_theta, self.rope_scaling = rope_theta, rope_scaling
        self.hidden_size, self.intermediate_size = hidden_size, intermediate_size
        self.num_attention_heads, self.num_key_value_heads = num_attention_heads, num_key_value_heads
        self.num_hidden_layers, self.vocab_size = num_hidden_layers, vocab_size
        self.max_position_embeddings = max_position_embeddings
        self.rms_norm_eps, self.bias, self.use_cache = rms_norm_eps, bias, use_cache
        self.attn_implementation = attn_implementation
        super().__init__(**others)
