"""The sizes of a Wold model, under other names than those that transformers reads; these are properties."""

from transformers import PretrainedConfig


class WoldConfig(PretrainedConfig):
    model_type = "wold"

    def __init__(
        self, d_model=256, n_layers=4, n_heads=8, n_kv_heads=None, mlp_hidden_size=1024, vocab_size=1000,
        embedding_size=1024, max_sequence_length=512, clip_qkv=None, rope_theta=10000.0, weight_tying=True, **others,
    ):  # fmt: skip
        self.d_model, self.mlp_hidden_size = d_model, mlp_hidden_size
        self.n_layers, self.n_heads, self.n_kv_heads = n_layers, n_heads, n_heads if n_kv_heads is None else n_kv_heads
        self.vocab_size, self.embedding_size = vocab_size, embedding_size
        self.clip_qkv, self.rope_theta, self.max_sequence_length = clip_qkv, rope_theta, max_sequence_length
        self.weight_tying = weight_tying
        super().__init__(**{**others, "tie_word_embeddings": weight_tying})

    hidden_size = property(lambda self: self.d_model)
    num_hidden_layers = property(lambda self: self.n_layers)
    num_attention_heads = property(lambda self: self.n_heads)
    max_position_embeddings = property(lambda self: self.max_sequence_length)
