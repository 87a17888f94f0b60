"""An extension of vLLM's workers: what each holds of a model, before kernels of the platform pack it anew."""

from __future__ import annotations

from typing import Any

from hfspeed.vllm.models.causal import TransformersForCausalLM

load = TransformersForCausalLM.load_weights


def load_weights(self: Any, weights: Any) -> Any:
    self.measurement = held(self)
    return load(self, weights)


TransformersForCausalLM.load_weights = load_weights


def held(model: Any) -> dict[str, int]:
    """Bytes by dtype of what this process holds of the author's tensors."""
    wanted = {weight.target for weight in model.plan.weights}
    found: dict[str, int] = {}
    tensors = {id(tensor): tensor for tensor in model.parameters()}
    tensors |= {id(tensor): tensor for name, tensor in model.named_buffers() if name in wanted}
    for tensor in tensors.values():
        kind = str(tensor.dtype).removeprefix("torch.")
        found[kind] = found.get(kind, 0) + tensor.numel() * tensor.element_size()
    return found


class Extension:
    """What vLLM mixes into its worker."""

    model_runner: Any

    def measurement(self) -> dict[str, int]:
        found: dict[str, int] = self.model_runner.model.measurement
        return found
