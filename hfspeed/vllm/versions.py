"""What differs between vLLM versions, or is private in it: every such branch is in this file."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING, Any

from hfspeed.errors import HfspeedError
from hfspeed.plan import Experts

if TYPE_CHECKING:
    from torch import nn

    from hfspeed.vllm.site import Site

PEER = "vllm.model_executor.models.transformers"
"""The package of vLLM's own transformers backend: what we stand in for."""

WITH_STATES = ("TransformersHybridForCausalLM", "TransformersAttentionFreeForCausalLM")
"""Classes of ours that vLLM does not know, for models whose sequences have states."""

SPLITTING_OP = "hfspeed_recurrence"
"""The op that computes with states; vLLM learns its name before it plans how to cut compiled code."""

_SHAPES = ("", "MultiModal"), ("", "MoE"), ("ForCausalLM", "EmbeddingModel", "ForSequenceClassification")


def backend_names(registry: Any) -> dict[str, str]:
    """Every architecture that vLLM would give to its own transformers backend, and the backend class it names.

    Read from the registry, so that a new vLLM's additions are seen. The combinations that vLLM can ask for
    but does not register itself are added: there it would serve another class without a word.
    """
    names = {f"Transformers{''.join(shape)}": f"Transformers{''.join(shape)}" for shape in product(*_SHAPES)}
    names |= {name: name for name in WITH_STATES}
    for name, model in list(registry.models.items()):
        module = getattr(model, "module_name", "")
        if module == PEER or module.startswith(f"{PEER}."):
            names[name] = model.class_name
    return names


def open_gate() -> None:
    """Let vLLM ask us about every causal language model.

    vLLM refuses a model whose classes do not say that attention is replaceable, before it asks the backend. hfspeed
    looks at the model, and its own class refuses, with reasons. So ``is_backend_compatible()`` is always answered yes:
    vLLM asks the base model, where a folder names one in ``auto_map``, and that knows nothing of the whole.
    Nothing else reads the answer, and it does not change which class serves.
    """
    from transformers import PreTrainedModel

    asked = PreTrainedModel.__dict__["is_backend_compatible"].__func__
    if getattr(asked, "by_hfspeed", False):
        return

    def is_backend_compatible(cls: Any) -> bool:  # noqa: ARG001  a class method
        return True

    is_backend_compatible.by_hfspeed = True  # type: ignore[attr-defined]
    PreTrainedModel.is_backend_compatible = classmethod(is_backend_compatible)


def use_full_heads() -> None:
    """Let vLLM lay out a cache of full heads for the models that we serve.

    By the look of a configuration alone (``kv_lora_rank``) it would be one for latent attention, of which the author's
    forward knows nothing: it makes full heads before it attends. Models served by vLLM's own classes keep theirs.
    """
    from vllm.config import ModelConfig

    asked = ModelConfig.__dict__["use_mla"].fget
    if getattr(asked, "by_hfspeed", False):
        return

    def use_mla(self: Any) -> bool:
        return bool(asked(self)) and not self._model_info.architecture.startswith("Transformers")

    use_mla.by_hfspeed = True  # type: ignore[attr-defined]
    ModelConfig.use_mla = property(use_mla)


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


def kernel_head_size(size: int) -> int:
    """The smallest head size, not below ``size``, that the attention kernel of this platform takes."""
    import torch
    from vllm.v1.attention.selector import get_attn_backend

    known = get_attn_backend(size, torch.get_default_dtype(), None).get_supported_head_sizes()
    return min((one for one in known if one >= size), default=size)


def is_quantised(module: nn.Module | None) -> bool:
    """Whether vLLM gave this layer a quantised kernel, whose parameters have other names, shapes and rules."""
    method = getattr(module, "quant_method", None)
    return method is not None and not type(method).__name__.startswith("Unquantized")


def outside_of_graphs(vllm_config: Any, operation: str) -> None:
    """Cut compiled graphs at ``operation``, and capture none across it: it reads values on the host."""
    settings = vllm_config.compilation_config
    if settings.splitting_ops is not None and operation not in settings.splitting_ops:
        settings.splitting_ops.append(operation)
    mode = settings.cudagraph_mode
    if mode is not None and mode.has_full_cudagraphs():
        settings.cudagraph_mode = type(mode).PIECEWISE


def compiles(vllm_config: Any) -> bool:
    """Whether vLLM will compile the model."""
    mode = vllm_config.compilation_config.mode
    return not vllm_config.model_config.enforce_eager and mode is not None and int(mode) > 0


def stage_span(count: int) -> tuple[int, int]:
    """The decoder layers of this pipeline stage, as vLLM divides them (``VLLM_PP_LAYER_PARTITION`` is obeyed)."""
    from vllm.distributed import get_pp_group
    from vllm.distributed.utils import get_pp_indices

    group = get_pp_group()
    start, end = get_pp_indices(count, group.rank_in_group, group.world_size)
    return start, end


KERNELS = {
    ("silu", True): "silu",
    ("gelu", True): "gelu",
    ("gelu_tanh", True): "gelu_tanh",
    ("silu", False): "silu_no_mul",
    ("gelu", False): "gelu_no_mul",
    ("gelu_tanh", False): "gelu_tanh_no_mul",
    ("relu2", False): "relu2_no_mul",
}
"""vLLM's names of plain forms, by activation and whether there is a gate."""


def kernel_name(op: Experts, ranks: int) -> str | None:
    """The name vLLM has for what ``op`` does between up and down; ``None`` if no kernel here has the form."""
    from vllm.platforms import current_platform

    if op.weighs_input:
        return None
    name = None
    if op.limit is None and op.alpha == 1.0 and op.beta == 0.0:
        name = KERNELS.get((op.act, op.gated))
    elif op.gated and (op.act, op.limit, op.alpha, op.beta) == ("silu", 7.0, 1.702, 1.0):
        name = "swigluoai"
    if name is None or bool(op.up_bias) != bool(op.down_bias):
        return None
    if not current_platform.is_cpu():
        return name
    narrow = name == "swigluoai" and (op.inner // ranks) % 32
    known = name in {"silu", "gelu", "gelu_tanh", "swigluoai"}
    return name if known and op.inputs % 32 == 0 and not narrow else None


def expert_kernel(op: Experts, kernel: str, chosen: Callable[..., Any], site: Site) -> Any:
    """A runner of fused experts, which asks ``chosen`` who was chosen."""
    from vllm.model_executor.layers.fused_moe import FusedMoEFactory

    parallel = site.vllm_config.parallel_config
    runner = FusedMoEFactory(
        num_experts=op.count,
        top_k=op.top_k,
        hidden_size=op.inputs,
        intermediate_size=op.inner,
        renormalize=False,
        quant_config=site.quant_config,
        prefix=site.prefix(op.path),
        enable_eplb=parallel.enable_eplb,
        num_redundant_experts=parallel.eplb_config.num_redundant_experts,
        custom_routing_function=chosen,
        activation=kernel,
        has_bias=bool(op.up_bias),
        is_sequence_parallel=parallel.use_sequence_parallel_moe,
        ckpt_names=("gate_proj", "down_proj", "up_proj" if op.gated else None),
    )
    _obey_expert_map(runner.routed_experts)
    return runner


def _obey_expert_map(held: Any) -> None:
    """Let vLLM's CPU kernels leave out the experts of other ranks.

    They take no map and read beyond their weights for others' numbers: so numbers are made local, weights zero.
    """
    from vllm.platforms import current_platform

    from hfspeed.vllm.gathers import uneven_collectives

    method = held.quant_method
    if not current_platform.is_cpu() or not held.use_ep or getattr(method, "experts_cls", None) is None:
        return

    uneven_collectives()
    original: Any = method.experts_cls

    def apply(self: Any, **given: Any) -> Any:
        """As the kernel's own, on local numbers."""
        if given["expert_map"] is not None:
            local = given["expert_map"][given["topk_ids"].long()]
            away = local < 0
            given["topk_ids"] = local.masked_fill(away, 0).to(given["topk_ids"].dtype)
            given["topk_weights"] = given["topk_weights"].masked_fill(away, 0.0)
            given["expert_map"] = None
        return original.apply(self, **given)

    method.experts_cls = type(f"Mapped{original.__name__}", (original,), {"apply": apply})


def share_of_experts(held: Any) -> tuple[int, int]:
    """Which share of each expert's width this process holds, and of how many."""
    parallel = held.moe_config.moe_parallel_config
    return parallel.tp_rank, parallel.tp_size


def ask_for_kind() -> None:
    """Let vLLM ask for another class where a model's sequences have states: it reads that off the class alone.

    The op that computes with states is announced as well: compiled code is cut at it, as it is at attention.
    """
    from vllm.config import CompilationConfig, ModelConfig
    from vllm.model_executor.models import registry

    # vLLM looks a name up in here to see that it is its transformers backend's; the values are never read
    registry._TRANSFORMERS_BACKEND_MODELS.update({name: ("transformers", name) for name in WITH_STATES})
    if f"vllm::{SPLITTING_OP}" not in CompilationConfig._attention_ops:
        CompilationConfig._attention_ops.append(f"vllm::{SPLITTING_OP}")
    asked = ModelConfig._get_transformers_backend_cls
    if getattr(asked, "by_hfspeed", False):
        return

    def _get_transformers_backend_cls(self: Any) -> str:
        """The name of the class that serves ``self``."""
        from hfspeed.vllm.kind import kind

        name: str = asked(self)
        if not name.endswith("ForCausalLM") or "MultiModal" in name:
            return name
        found = kind(self)
        return f"Transformers{found}ForCausalLM" if found else name

    _get_transformers_backend_cls.by_hfspeed = True  # type: ignore[attr-defined]
    ModelConfig._get_transformers_backend_cls = _get_transformers_backend_cls


def register_splitting_op(function: Any, shapes: Any, *, mutates: list[str]) -> str:
    """Make ``function`` the op of vLLM's that `ask_for_kind` announced, run between compiled pieces.

    Args:
        function: annotated with types that torch has a schema for; named as the op is.
        shapes: the same on tensors without values.
        mutates: the arguments it writes to.

    Returns:
        Its full name.
    """
    from vllm.utils.torch_utils import direct_register_custom_op

    assert function.__name__ == SPLITTING_OP
    direct_register_custom_op(op_name=SPLITTING_OP, op_func=function, mutates_args=mutates, fake_impl=shapes)
    return f"vllm::{SPLITTING_OP}"


def copy_whole() -> Any:
    """The function of vLLM's that copies a state as it is from page to page."""
    from vllm.model_executor.layers.mamba.mamba_utils import get_temporal_copy_spec

    return get_temporal_copy_spec
