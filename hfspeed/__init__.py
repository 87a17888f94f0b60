"""What an author can say in a modeling file; importing this loads neither torch nor transformers nor vllm."""

from hfspeed.hints import attention, decoder_layers, experts, gated_mlp, norm, recurrence

__all__ = ["attention", "decoder_layers", "experts", "gated_mlp", "norm", "recurrence"]
