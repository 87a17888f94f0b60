"""The sizes of a Cairn model, under short names."""

from transformers import PretrainedConfig


class CairnConfig(PretrainedConfig):
    model_type = "cairn"
    attribute_map = {
        "num_hidden_layers": "n_layer", "num_attention_heads": "n_head", "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
    }  # fmt: skip

    def __init__(
        self, n_embd=256, n_layer=4, n_head=8, n_inner=None, n_positions=512, vocab_size=1024, layer_norm_epsilon=1e-5,
        scale_attn_weights=True, **others,
    ):  # fmt: skip
        self.n_embd, self.n_inner, self.n_layer, self.n_head = n_embd, n_inner, n_layer, n_head
        self.n_positions, self.vocab_size = n_positions, vocab_size
        self.layer_norm_epsilon, self.scale_attn_weights = layer_norm_epsilon, scale_attn_weights
        super().__init__(**others)
