"""The class vLLM loads for what it takes for a mixture of experts: the same as for any other model."""

from __future__ import annotations

from hfspeed.vllm.models.causal import TransformersForCausalLM


class TransformersMoEForCausalLM(TransformersForCausalLM):
    """vLLM tells the two apart by the look of the configuration; the plan says what there is."""
