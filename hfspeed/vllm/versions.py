"""What differs between vLLM versions, or is private in it: every such branch is in this file."""

from __future__ import annotations

import copy
from itertools import product
from typing import TYPE_CHECKING, Any

from hfspeed.errors import HfspeedError, RefusedError
from hfspeed.refusal import Reason, Refusal

if TYPE_CHECKING:
    from torch import nn

PEER = "vllm.model_executor.models.transformers"
"""The package of vLLM's own transformers backend: what we stand in for."""

SERVED = "TransformersForCausalLM"
"""The one backend class whose models hfspeed serves."""

_SHAPES = ("", "MultiModal"), ("", "MoE"), ("ForCausalLM", "EmbeddingModel", "ForSequenceClassification")


def backend_names(registry: Any) -> dict[str, str]:
    """Every architecture that vLLM would give to its own transformers backend, and the backend class it names.

    Read from the registry, so that a new vLLM's additions are seen. The combinations that vLLM can ask for
    but does not register itself are added: there it would serve another class without a word.
    """
    names = {f"Transformers{''.join(shape)}": f"Transformers{''.join(shape)}" for shape in product(*_SHAPES)}
    for name, model in list(registry.models.items()):
        module = getattr(model, "module_name", "")
        if module == PEER or module.startswith(f"{PEER}."):
            names[name] = model.class_name
    return names


def open_gate() -> None:
    """Let vLLM ask us about every causal language model.

    vLLM refuses a model whose classes do not say that attention is replaceable, before it asks the backend for its
    class. hfspeed finds out by looking at the model, and its own class refuses, with reasons, when it is built. So
    the question that vLLM asks, ``is_backend_compatible()``, is answered yes for whatever generates. Nothing else
    reads the answer, and which class serves is not changed by it: architectures that vLLM has a class for stay
    with that class unless the transformers backend is asked for.
    """
    from transformers import PreTrainedModel

    asked = PreTrainedModel.__dict__["is_backend_compatible"].__func__
    if getattr(asked, "by_hfspeed", False):
        return

    def is_backend_compatible(cls: Any) -> bool:
        """Whether a serving backend may be asked for this model."""
        return bool(asked(cls)) or bool(cls.can_generate())

    is_backend_compatible.by_hfspeed = True  # type: ignore[attr-defined]
    PreTrainedModel.is_backend_compatible = classmethod(is_backend_compatible)


def mark_compile_key(vllm_config: Any, digest: str) -> None:
    """Make the compile cache's key depend on the plan.

    The key does not see who built a model, so without this a graph of another backend, or of another plan for
    the same author's class, could be run in place of ours.
    """
    extra = vllm_config.additional_config
    if not isinstance(extra, dict):
        raise HfspeedError(
            f"--additional-config is a {type(extra).__name__}; hfspeed has to add the plan's digest to it, "
            "so that compiled graphs are not mixed up: give a JSON object"
        )
    extra["hfspeed"] = digest


def cache_without_window(cache_config: Any) -> Any:
    """The cache settings, without a window for the whole model: windows come from the plan, layer by layer."""
    if getattr(cache_config, "sliding_window", None) is None:
        return cache_config
    own = copy.copy(cache_config)
    own.sliding_window = None
    return own


def check_cache_kind(vllm_config: Any, subject: str) -> None:
    """Raise if vLLM has laid its cache out for latent attention, as it does by the look of a configuration alone.

    Raises:
        RefusedError: the layout was decided in other processes before; only the environment can change it.
    """
    if not vllm_config.model_config.use_mla:
        return
    told = Refusal(
        wanted="attention",
        reason=Reason.CANNOT_RUN,
        found="vLLM has laid its cache out for latent attention, and hfspeed serves this model with full heads",
        module=subject,
        help="export VLLM_MLA_DISABLE=1, and start again",
    )
    raise RefusedError(f"{subject} (export VLLM_MLA_DISABLE=1 to serve it with full heads)", (told,))


def is_quantised(module: nn.Module | None) -> bool:
    """Whether vLLM gave this layer a quantised kernel, whose parameters have other names, shapes and rules."""
    method = getattr(module, "quant_method", None)
    return method is not None and not type(method).__name__.startswith("Unquantized")


def stage_span(count: int) -> tuple[int, int]:
    """The decoder layers of this pipeline stage, as vLLM divides them (``VLLM_PP_LAYER_PARTITION`` is obeyed)."""
    from vllm.distributed import get_pp_group
    from vllm.distributed.utils import get_pp_indices

    group = get_pp_group()
    start, end = get_pp_indices(count, group.rank_in_group, group.world_size)
    return start, end
