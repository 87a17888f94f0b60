"""The configuration of this folder's model."""

from transformers import PretrainedConfig


class WoldConfig(PretrainedConfig):
    model_type = "wold"
    keys_to_ignore_at_inference = ["past_key_values"]

    def __init__(
        self, d_model=4096, n_heads=32, n_kv_heads=None, n_layers=32, mlp_hidden_size=22016, clip_qkv=None,
        vocab_size=50280, embedding_size=50304, max_sequence_length=2048, rope_theta=10000, weight_tying=True, **kwargs,
    ):  # fmt: skip
        self.d_model = d_model
        self.n_heads = n_heads
        self.n_kv_heads = n_kv_heads or n_heads
        self.n_layers = n_layers
        self.mlp_hidden_size = mlp_hidden_size
        self.clip_qkv = clip_qkv
        self.vocab_size = vocab_size
        self.embedding_size = embedding_size
        self.max_sequence_length = max_sequence_length
        self.rope_theta = rope_theta
        self.weight_tying = weight_tying
        kwargs["tie_word_embeddings"] = weight_tying
        super().__init__(**kwargs)

    @property
    def num_attention_heads(self):
        return self.n_heads

    @property
    def num_hidden_layers(self):
        return self.n_layers

    @property
    def hidden_size(self):
        return self.d_model

    @property
    def max_position_embeddings(self):
        return self.max_sequence_length
