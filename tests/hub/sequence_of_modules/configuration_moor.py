"""The sizes of a Moor model, under short names of its own."""

from transformers import PretrainedConfig


class MoorConfig(PretrainedConfig):
    model_type = "moor"
    attribute_map = {
        "num_hidden_layers": "n_layer", "num_attention_heads": "n_head", "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
    }  # fmt: skip

    def __init__(
        self, n_layer=4, n_head=8, n_embd=256, n_inner=None, n_positions=512, vocab_size=1024, rotary_dim=16,
        layer_norm_epsilon=1e-5, fast_kernels=False, **others,
    ):  # fmt: skip
        self.n_layer, self.n_head, self.n_positions, self.vocab_size = n_layer, n_head, n_positions, vocab_size
        self.n_embd, self.n_inner = n_embd, n_inner
        self.rotary_dim = min(n_embd // n_head, rotary_dim)
        self.layer_norm_epsilon = layer_norm_epsilon
        self.fast_kernels = fast_kernels
        super().__init__(**others)
