"""Classes for the backend names that hfspeed does not serve: vLLM can inspect them, and building one tells why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn

from hfspeed.errors import HfspeedError

if TYPE_CHECKING:
    import torch

WANTED = {
    "MultiModal": "a multimodal model",
    "EmbeddingModel": "an embedding model",
    "ForSequenceClassification": "a classifier",
}


class Refusing(nn.Module):
    """A model that cannot be built.

    If vLLM could not load or inspect our class it would serve another one in its place, without saying so.
    So the class is complete, and the refusal comes where vLLM lets errors through: when it is built.
    """

    supports_pp: ClassVar[bool] = True
    make_empty_intermediate_tensors: Any = None

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:  # noqa: ARG002  vLLM calls it with both
        super().__init__()
        name = type(self).__name__
        what = " and ".join(word for part, word in WANTED.items() if part in name) or "another kind of model"
        raise not_served(vllm_config, what)

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Never called."""
        raise NotImplementedError

    def forward(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Never called."""
        raise NotImplementedError

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor | None:
        """Never called."""
        raise NotImplementedError


def not_served(vllm_config: Any, what: str) -> HfspeedError:
    """The error for a model, or a use of one, that is none of ours."""
    return HfspeedError(
        f"{vllm_config.model_config.model} is {what}; hfspeed serves text-only causal language models; "
        "set HFSPEED=off for vLLM's own backend"
    )


def refusing(name: str) -> type[Refusing]:
    """The refusing class called ``name``, with the flags that let vLLM's own checks pass to the refusal."""
    body: dict[str, Any] = {"__module__": "hfspeed.vllm.models", "__doc__": f"Refuses: {name} is not served."}
    if not name.endswith("ForCausalLM"):
        body["is_pooling_model"] = True
        body["pooler"] = None
    return type(name, (Refusing,), body)
