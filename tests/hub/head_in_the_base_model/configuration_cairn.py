"""The configuration of this folder's model."""

from transformers import PretrainedConfig


class CairnConfig(PretrainedConfig):
    model_type = "cairn"
    attribute_map = {"num_hidden_layers": "num_layers", "vocab_size": "padded_vocab_size"}

    def __init__(
        self, hidden_size=256, ffn_hidden_size=640, num_layers=4, num_attention_heads=8, multi_query_group_num=2,
        padded_vocab_size=1024, seq_length=512, layernorm_epsilon=1e-5, **others,
    ):  # fmt: skip
        self.hidden_size, self.ffn_hidden_size = hidden_size, ffn_hidden_size
        self.num_attention_heads, self.multi_query_group_num = num_attention_heads, multi_query_group_num
        self.num_layers, self.padded_vocab_size, self.seq_length = num_layers, padded_vocab_size, seq_length
        self.layernorm_epsilon = layernorm_epsilon
        super().__init__(**others)
