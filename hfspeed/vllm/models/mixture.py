"""The class vLLM loads for what it takes for a mixture of experts: the same as for any other model."""

from __future__ import annotations

from typing import Any

from hfspeed.vllm.balance import Balanced
from hfspeed.vllm.models.causal import TransformersForCausalLM


class TransformersMoEForCausalLM(TransformersForCausalLM, Balanced):
    """vLLM tells the two apart by the look of the configuration; the plan says what there is."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.find_experts(self, vllm_config.parallel_config)
