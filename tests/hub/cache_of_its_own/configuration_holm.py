"""The configuration of this folder's model."""

from transformers.configuration_utils import PretrainedConfig


class HolmConfig(PretrainedConfig):
    model_type = "holm"

    def __init__(
        self, vocab_size=103168, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=None, hidden_act="silu", max_position_embeddings=2048,
        rms_norm_eps=1e-6, use_cache=True, bias=True, rope_theta=10000, rope_scaling=None,
        attn_implementation="eager", tie_word_embeddings=False, **kwargs,
    ):  # fmt: skip
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.num_key_value_heads = num_key_value_heads or num_attention_heads
        self.hidden_act = hidden_act
        self.max_position_embeddings = max_position_embeddings
        self.rms_norm_eps = rms_norm_eps
        self.use_cache = use_cache
        self.bias = bias
        self.rope_theta = rope_theta
        self.rope_scaling = rope_scaling
        self._check_scaling()
        self.attn_implementation = attn_implementation
        super().__init__(tie_word_embeddings=tie_word_embeddings, **kwargs)

    def _check_scaling(self):
        if self.rope_scaling is None:
            return
        if not isinstance(self.rope_scaling, dict):
            raise ValueError(f"`rope_scaling` must be a dictionary, got {self.rope_scaling}")
        if self.rope_scaling.get("type") not in ("linear", "dynamic"):
            raise ValueError(f"`rope_scaling` must be linear or dynamic, got {self.rope_scaling}")
