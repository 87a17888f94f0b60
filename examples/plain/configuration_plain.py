"""The sizes and multipliers of the decoder without hints."""

from transformers import PreTrainedConfig


class PlainConfig(PreTrainedConfig):
    """What `PlainForCausalLM` is built from."""

    model_type = "plain"
    keys_to_ignore_at_inference = ["past_key_values"]
    attribute_map = {
        "hidden_size": "width",
        "num_hidden_layers": "depth",
        "num_attention_heads": "heads",
        "num_key_value_heads": "kv_heads",
        "intermediate_size": "inner",
    }

    vocab_size: int = 512
    width: int = 256
    inner: int = 640
    depth: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    theta: float = 10_000.0
    epsilon: float = 1e-6
    logit_scale: float = 0.5
    max_position_embeddings: int = 2048
    initializer_range: float = 0.02
    use_cache: bool = True
    bos_token_id: int | None = 1
    eos_token_id: int | None = 2
    pad_token_id: int | None = 0
    tie_word_embeddings: bool = False


__all__ = ["PlainConfig"]
