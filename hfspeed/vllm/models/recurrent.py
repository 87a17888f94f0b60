"""The same model class, as vLLM wants to be told that sequences have states: beside attention, or in its place."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from vllm.v1.kv_cache_interface import MambaSpec

from hfspeed.errors import RefusedError
from hfspeed.refusal import Reason, Refusal
from hfspeed.vllm.models.causal import TransformersForCausalLM
from hfspeed.vllm.states import Pages
from hfspeed.vllm.versions import SPLITTING_OP, copy_whole, outside_of_graphs


class Recurrent(TransformersForCausalLM):
    """A model some of whose layers keep a state per sequence."""

    has_inner_state: ClassVar[Literal[True]] = True
    supports_mamba_prefix_caching: ClassVar[Literal[True]] = True

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        _check(vllm_config)
        # which tokens are whose is read on the host, so no graph of a whole step is captured
        outside_of_graphs(vllm_config, f"vllm::{SPLITTING_OP}")
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        if getattr(self, "is_hybrid", False):
            check_stage(vllm_config)

    @classmethod
    def get_mamba_specs_from_config(cls, vllm_config: Any) -> list[MambaSpec]:
        """Pages of the layers that are built: vLLM asks when they are."""
        layers = vllm_config.compilation_config.static_forward_context.values()
        return [
            MambaSpec(shapes=layer.get_state_shape(), dtypes=layer.get_state_dtype(), block_size=-1)
            for layer in layers
            if isinstance(layer, Pages)
        ]

    @classmethod
    def get_mamba_state_dtype_from_config(cls, vllm_config: Any) -> tuple[Any, ...]:
        """The dtype of a page."""
        return tuple(spec.dtypes[0] for spec in cls.get_mamba_specs_from_config(vllm_config)[:1])

    @classmethod
    def get_mamba_state_copy_func(cls) -> tuple[Any, ...]:
        """A page is copied whole."""
        return (copy_whole(),)

    @classmethod
    def get_mamba_state_copy_funcs(cls, mamba_types: set[Any]) -> dict[Any, tuple[Any, ...]]:
        """The same for every kind."""
        return dict.fromkeys(mamba_types, cls.get_mamba_state_copy_func())


class TransformersHybridForCausalLM(Recurrent):
    """States in some layers, attention in others."""

    is_hybrid: ClassVar[Literal[True]] = True


class TransformersAttentionFreeForCausalLM(Recurrent):
    """States only."""

    is_attention_free: ClassVar[Literal[True]] = True


def check_stage(vllm_config: Any) -> None:
    """Refuse a pipeline stage of a hybrid that has states only, or attention only.

    Raises:
        RefusedError: vLLM makes pages of both one size, which each stage finds out from the layers that it has.
    """
    layers = list(vllm_config.compilation_config.static_forward_context.values())
    states = [isinstance(layer, Pages) for layer in layers]
    if vllm_config.parallel_config.pipeline_parallel_size == 1 or (any(states) and not all(states)):
        return
    found = f"a pipeline stage has only layers with {'states' if any(states) else 'attention'}"
    told = Refusal(
        wanted="stages",
        reason=Reason.CANNOT_RUN,
        found=f"{found}, and vLLM makes its pages as large as both need",
        help="take fewer stages, or cut elsewhere with VLLM_PP_LAYER_PARTITION, so that each stage has both kinds",
    )
    raise RefusedError(f"{vllm_config.model_config.model} in such stages", (told,))


def _check(vllm_config: Any) -> None:
    """Refuse what would lose or mix states.

    Raises:
        RefusedError: drafts would have to be taken back out of a state.
    """
    if vllm_config.speculative_config is None:
        return
    told = Refusal(
        wanted="recurrence",
        reason=Reason.CANNOT_RUN,
        found="tokens that are drafted and not accepted cannot be taken back out of a state",
        help="leave out --speculative-config",
    )
    raise RefusedError(f"{vllm_config.model_config.model} with speculative decoding", (told,))
