"""The configuration of this folder's model."""

from transformers.configuration_utils import PretrainedConfig


class TarnConfig(PretrainedConfig):
    model_type = "tarn"

    def __init__(
        self, hidden_size=256, intermediate_size=640, num_hidden_layers=4, num_attention_heads=8, vocab_size=1024,
        model_max_length=512, rms_norm_eps=1e-6, **others,
    ):  # fmt: skip
        self.hidden_size, self.intermediate_size, self.vocab_size = hidden_size, intermediate_size, vocab_size
        self.num_hidden_layers, self.num_attention_heads = num_hidden_layers, num_attention_heads
        self.max_position_embeddings = self.model_max_length = model_max_length
        self.rms_norm_eps = rms_norm_eps
        super().__init__(**others)
