"""The configuration of this folder's model."""

from transformers import PretrainedConfig


class SkerryConfig(PretrainedConfig):
    model_type = "skerry"
    keys_to_ignore_at_inference = ["past_key_values"]

    def __init__(
        self, vocab_size=151936, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
        kv_channels=128, intermediate_size=22016, trained_length=2048, max_position_embeddings=8192,
        rotary_pct=1.0, rotary_emb_base=10000, layer_norm_epsilon=1e-6, use_logn_attn=True, no_bias=True, **kwargs,
    ):  # fmt: skip
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.kv_channels = kv_channels
        self.intermediate_size = intermediate_size
        self.trained_length = trained_length
        self.max_position_embeddings = max_position_embeddings
        self.rotary_pct = rotary_pct
        self.rotary_emb_base = rotary_emb_base
        self.layer_norm_epsilon = layer_norm_epsilon
        self.use_logn_attn = use_logn_attn
        self.no_bias = no_bias
        super().__init__(**kwargs)
