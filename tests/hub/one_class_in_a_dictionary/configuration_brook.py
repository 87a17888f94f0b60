"""The configuration of this folder's model."""

from transformers import PretrainedConfig


class BrookConfig(PretrainedConfig):
    model_type = "brook"

    def __init__(
        self, vocab_size=32000, n_embd=1024, n_layer=12, n_head=16, block_size=1024, cap=30.0, dropout=0.0, **kwargs
    ):
        self.vocab_size, self.block_size = vocab_size, block_size
        self.n_embd, self.n_layer, self.n_head = n_embd, n_layer, n_head
        self.cap, self.dropout = cap, dropout
        super().__init__(**kwargs)
