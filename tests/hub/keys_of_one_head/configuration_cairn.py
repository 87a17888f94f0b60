"""The configuration of this folder's model."""

from transformers import PretrainedConfig


class CairnConfig(PretrainedConfig):
    model_type = "cairn"
    attribute_map = {
        "hidden_size": "n_embd", "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head", "num_hidden_layers": "n_layer",
    }  # fmt: skip

    def __init__(
        self, vocab_size=49152, n_positions=8192, n_embd=6144, n_layer=40, n_head=48, n_inner=None,
        layer_norm_epsilon=1e-5, scale_attn_weights=True, attention_softmax_in_fp32=True, **kwargs,
    ):  # fmt: skip
        self.vocab_size = vocab_size
        self.n_positions = n_positions
        self.n_embd = n_embd
        self.n_layer = n_layer
        self.n_head = n_head
        self.n_inner = n_inner
        self.layer_norm_epsilon = layer_norm_epsilon
        self.scale_attn_weights = scale_attn_weights
        self.attention_softmax_in_fp32 = attention_softmax_in_fp32
        super().__init__(**kwargs)
