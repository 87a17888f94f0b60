"""The configuration of this folder's model."""

from transformers import PretrainedConfig


class GillConfig(PretrainedConfig):
    model_type = "gill"

    def __init__(
        self, vocab_size=32000, dim=1024, inner=2816, depth=8, heads=16, kv_heads=4, longest=2048, rounds=2, **kwargs
    ):
        self.vocab_size, self.dim, self.inner, self.depth = vocab_size, dim, inner, depth
        self.heads, self.kv_heads, self.longest, self.rounds = heads, kv_heads, longest, rounds
        super().__init__(**kwargs)
