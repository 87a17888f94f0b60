"""The configuration of this folder's model."""

from transformers.configuration_utils import PretrainedConfig


class TarnConfig(PretrainedConfig):
    model_type = "tarn"

    def __init__(
        self, vocab_size=64000, hidden_size=5120, intermediate_size=13696, num_hidden_layers=40,
        num_attention_heads=40, model_max_length=4096, rms_norm_eps=1e-6, **kwargs,
    ):  # fmt: skip
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.model_max_length = self.max_position_embeddings = model_max_length
        self.rms_norm_eps = rms_norm_eps
        super().__init__(**kwargs)
