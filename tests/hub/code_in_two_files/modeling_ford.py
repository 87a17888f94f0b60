"""The model: learned positions, counted along the prompt; a tied head; layers from the file beside this one."""

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from .configuration_ford import FordConfig
from .layers_ford import Block


class FordPreTrainedModel(PreTrainedModel):
    config_class = FordConfig
    base_model_prefix = "transformer"


class FordModel(FordPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.wte = nn.Embedding(config.vocab_size, config.width)
        self.wpe = nn.Embedding(config.longest, config.width)
        self.h = nn.ModuleList([Block(config) for _ in range(config.depth)])
        self.ln_f = nn.LayerNorm(config.width)
        self.post_init()

    def get_input_embeddings(self):
        return self.wte

    def forward(self, input_ids=None, inputs_embeds=None, **kwargs):
        x = self.wte(input_ids) if inputs_embeds is None else inputs_embeds
        x = x + self.wpe(torch.arange(x.shape[1], device=x.device))
        for block in self.h:
            x = block(x)
        return BaseModelOutputWithPast(last_hidden_state=self.ln_f(x))


class FordForCausalLM(FordPreTrainedModel, GenerationMixin):
    _tied_weights_keys = {"lm_head.weight": "transformer.wte.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.transformer = FordModel(config)
        self.lm_head = nn.Linear(config.width, config.vocab_size, bias=False)
        self.post_init()

    def get_output_embeddings(self):
        return self.lm_head

    def forward(self, input_ids=None, **kwargs):
        out = self.transformer(input_ids=input_ids, **kwargs)
        return CausalLMOutputWithPast(logits=self.lm_head(out.last_hidden_state))
