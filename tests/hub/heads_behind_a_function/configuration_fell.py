"""The configuration of this folder's model."""

from transformers import PretrainedConfig


class FellConfig(PretrainedConfig):
    model_type = "fell"
    attribute_map = {"num_hidden_layers": "num_layers", "vocab_size": "padded_vocab_size"}

    def __init__(
        self, num_layers=28, padded_vocab_size=65024, hidden_size=4096, ffn_hidden_size=13696,
        num_attention_heads=32, multi_query_group_num=2, seq_length=2048, layernorm_epsilon=1e-5,
        add_qkv_bias=True, apply_query_key_layer_scaling=True, rope_ratio=1, **kwargs,
    ):  # fmt: skip
        self.num_layers = num_layers
        self.padded_vocab_size = padded_vocab_size
        self.hidden_size = hidden_size
        self.ffn_hidden_size = ffn_hidden_size
        self.num_attention_heads = num_attention_heads
        self.multi_query_group_num = multi_query_group_num
        self.seq_length = seq_length
        self.layernorm_epsilon = layernorm_epsilon
        self.add_qkv_bias = add_qkv_bias
        self.apply_query_key_layer_scaling = apply_query_key_layer_scaling
        self.rope_ratio = rope_ratio
        super().__init__(**kwargs)
