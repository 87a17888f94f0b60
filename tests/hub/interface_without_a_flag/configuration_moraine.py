"""The configuration of this folder's model."""

from transformers import PretrainedConfig


class MoraineConfig(PretrainedConfig):
    model_type = "moraine"

    def __init__(
        self,
        vocab_size=32000,
        width=2048,
        inner=5632,
        depth=16,
        heads=16,
        kv_heads=8,
        longest=2048,
        scale_emb=12.0,
        scale_depth=1.4,
        dim_base=64,
        max_position_embeddings=2048,
        **kwargs,
    ):
        self.vocab_size = vocab_size
        self.width = width
        self.inner = inner
        self.depth = depth
        self.heads = heads
        self.kv_heads = kv_heads
        self.longest = longest
        self.scale_emb = scale_emb
        self.scale_depth = scale_depth
        self.dim_base = dim_base
        self.max_position_embeddings = max_position_embeddings
        super().__init__(**kwargs)
