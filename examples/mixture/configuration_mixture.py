"""The sizes of a small mixture of experts."""

from transformers import PreTrainedConfig


class MixtureConfig(PreTrainedConfig):
    """What `MixtureForCausalLM` is built from. By default 0.7B, of which 0.2B for each token."""

    model_type = "mixture"
    keys_to_ignore_at_inference = ["past_key_values"]

    vocab_size: int = 49152
    hidden_size: int = 768
    intermediate_size: int = 2048
    moe_intermediate_size: int = 512
    num_experts: int = 32
    num_experts_per_tok: int = 4
    first_dense_layers: int = 1
    routed_scale: float = 1.5
    num_hidden_layers: int = 16
    num_attention_heads: int = 12
    num_key_value_heads: int = 4
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


__all__ = ["MixtureConfig"]
