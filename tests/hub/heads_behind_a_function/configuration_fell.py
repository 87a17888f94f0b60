"""The sizes of a Fell model; two of them have names that transformers does not know."""

from transformers import PretrainedConfig


class FellConfig(PretrainedConfig):
    model_type = "fell"
    attribute_map = {"vocab_size": "padded_vocab_size", "num_hidden_layers": "num_layers"}

    def __init__(
        self, hidden_size=256, ffn_hidden_size=640, num_layers=4, num_attention_heads=8, multi_query_group_num=2,
        padded_vocab_size=1024, seq_length=512, rope_ratio=1.0, layernorm_epsilon=1e-5, add_qkv_bias=True,
        apply_query_key_layer_scaling=True, **others,
    ):  # fmt: skip
        self.hidden_size, self.ffn_hidden_size = hidden_size, ffn_hidden_size
        self.num_attention_heads, self.multi_query_group_num = num_attention_heads, multi_query_group_num
        self.num_layers, self.padded_vocab_size, self.seq_length = num_layers, padded_vocab_size, seq_length
        self.rope_ratio, self.layernorm_epsilon = rope_ratio, layernorm_epsilon
        self.add_qkv_bias, self.apply_query_key_layer_scaling = add_qkv_bias, apply_query_key_layer_scaling
        super().__init__(**others)
