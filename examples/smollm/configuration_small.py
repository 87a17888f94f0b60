"""The sizes of a small decoder."""

from transformers import PreTrainedConfig


class SmallConfig(PreTrainedConfig):
    """What `SmallForCausalLM` is built from. The defaults are those of a 135M model."""

    model_type = "small"
    keys_to_ignore_at_inference = ["past_key_values"]

    vocab_size: int = 49152
    hidden_size: int = 576
    intermediate_size: int = 1536
    num_hidden_layers: int = 30
    num_attention_heads: int = 9
    num_key_value_heads: int = 3
    head_dim: int = 64
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


__all__ = ["SmallConfig"]
