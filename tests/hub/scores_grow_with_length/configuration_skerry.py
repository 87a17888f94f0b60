"""The sizes of a Skerry model, the length it was trained on among them."""

from transformers import PretrainedConfig


class SkerryConfig(PretrainedConfig):
    model_type = "skerry"

    def __init__(
        self, hidden_size=256, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8, kv_channels=32,
        vocab_size=1024, trained_length=128, max_position_embeddings=512, use_logn_attn=True, rotary_pct=1.0,
        rotary_emb_base=10000.0, layer_norm_epsilon=1e-6, no_bias=True, **others,
    ):  # fmt: skip
        self.hidden_size, self.intermediate_size, self.vocab_size = hidden_size, intermediate_size, vocab_size
        self.num_attention_heads, self.kv_channels = num_attention_heads, kv_channels
        self.num_hidden_layers, self.layer_norm_epsilon = num_hidden_layers, layer_norm_epsilon
        self.trained_length, self.max_position_embeddings = trained_length, max_position_embeddings
        self.use_logn_attn, self.no_bias = use_logn_attn, no_bias
        self.rotary_pct, self.rotary_emb_base = rotary_pct, rotary_emb_base
        super().__init__(**others)
