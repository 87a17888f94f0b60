"""The configuration of this folder's model."""

from transformers import PretrainedConfig


class MoorConfig(PretrainedConfig):
    model_type = "moor"
    attribute_map = {
        "max_position_embeddings": "n_positions", "hidden_size": "n_embd",
        "num_attention_heads": "n_head", "num_hidden_layers": "n_layer",
    }  # fmt: skip

    def __init__(
        self, vocab_size=50304, n_positions=2048, n_embd=2048, n_layer=24, n_inner=None, n_head=32, n_head_kv=None,
        rotary_dim=32, layer_norm_epsilon=1e-5, flash_attn=False, **kwargs,
    ):  # fmt: skip
        self.vocab_size = vocab_size
        self.n_positions = n_positions
        self.n_embd = n_embd
        self.n_layer = n_layer
        self.n_inner = n_inner
        self.n_head = n_head
        self.n_head_kv = n_head_kv
        self.rotary_dim = min(rotary_dim, n_embd // n_head)
        self.layer_norm_epsilon = layer_norm_epsilon
        self.flash_attn = flash_attn
        super().__init__(**kwargs)
