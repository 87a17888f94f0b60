"""The configuration of this folder's model."""

from transformers import PretrainedConfig


class MeadowConfig(PretrainedConfig):
    model_type = "meadow"

    def __init__(
        self, vocab_size=32000, width=2048, inner=5632, depth=16, heads=16, kv_heads=8, longest=2048, **kwargs
    ):
        self.vocab_size = vocab_size
        self.width = width
        self.inner = inner
        self.depth = depth
        self.heads = heads
        self.kv_heads = kv_heads
        self.longest = longest
        super().__init__(**kwargs)
