"""The sizes of a small hybrid: most layers keep a memory of one size, every few attend to all tokens."""

from transformers import PreTrainedConfig


class HybridConfig(PreTrainedConfig):
    """What `HybridForCausalLM` is built from. The defaults are those of a 190M model."""

    model_type = "hybrid"
    keys_to_ignore_at_inference = ["past_key_values"]

    vocab_size: int = 49152
    hidden_size: int = 768
    intermediate_size: int = 2048
    num_hidden_layers: int = 16
    num_attention_heads: int = 12
    num_key_value_heads: int = 4
    head_dim: int = 64
    memory_heads: int = 8
    memory_key_size: int = 64
    memory_value_size: int = 128
    memory_inputs: int = 4
    attention_every: int = 4
    layer_types: list[str] | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 8192
    rms_norm_eps: float = 1e-5
    rope_parameters: dict | None = None
    initializer_range: float = 0.02
    attention_dropout: float = 0.0
    use_cache: bool = True
    bos_token_id: int | None = 1
    eos_token_id: int | None = 2
    pad_token_id: int | None = 2
    tie_word_embeddings: bool = True

    default_theta = 100_000.0

    def __post_init__(self, **kwargs):
        if self.layer_types is None:  # the names by which the caches of transformers know their layers
            attends = [(number + 1) % self.attention_every == 0 for number in range(self.num_hidden_layers)]
            self.layer_types = ["full_attention" if one else "linear_attention" for one in attends]
        super().__post_init__(**kwargs)


__all__ = ["HybridConfig"]
