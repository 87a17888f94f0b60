"""The author's class and the plan for what vLLM was told to serve."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import nn

from hfspeed.errors import RefusedError, SubjectError
from hfspeed.plan import Plan, Positions
from hfspeed.plan.unsplit import whole_mixers
from hfspeed.refusal import Reason, Refusal


@dataclass(frozen=True)
class Prepared:
    """What a model class needs before it builds.

    Attributes:
        author: the author's ``ForCausalLM``: parameters on meta, buffers real.
        plan: what was decided about it.
        classes: the emitted module.
        digest: hash of the plan and so of the emitted text.
    """

    author: nn.Module
    plan: Plan
    classes: ModuleType
    digest: str


def prepare(vllm_config: Any) -> Prepared:
    """Plan and build the author's module for ``vllm_config``.

    Raises:
        RefusedError: the model cannot be served correctly.
        SubjectError: it cannot be found or built.
    """
    from hfspeed.emit import digest
    from hfspeed.planner.build import build
    from hfspeed.planner.serve import plan_for

    model_config = vllm_config.model_config
    model_class = class_of(model_config)
    config = config_of(model_config, model_class)
    plan, classes = plan_for(config, model_class)
    if vllm_config.parallel_config.tensor_parallel_size > 1 and (vllm_config.quant_config or vllm_config.lora_config):
        plan = whole_mixers(plan)  # packed numbers cannot be cut by rows, and adapters are made for whole projections
    _short_enough(plan, model_config.max_model_len)
    with torch.device("cpu"):
        dtype, interface = torch.get_default_dtype(), plan.wrapper.interface
        author = build(model_class, config, dtype=dtype, buffers=True, interface=interface)
    author.config.use_cache = False
    return Prepared(author, plan, classes, digest(plan))


def _short_enough(plan: Plan, longest: int) -> None:
    """Refuse sequences by which the author's code would begin to compute otherwise, for all of a batch."""
    limits = [plan.wrapper.limit, *(op.limit for op in plan.ops if isinstance(op, Positions))]
    limit = min((one for one in limits if one), default=longest)
    if limit < longest:
        found = (
            f"for sequences of more than {limit} tokens the forward computes otherwise, for all that run beside them; "
            f"vLLM was told to take {longest}"
        )
        help_ = f"start with --max-model-len {limit} or less"
        raise RefusedError(plan.architecture, (Refusal("model", Reason.VALUE_VARIES, found, help=help_),))


def config_of(model_config: Any, model_class: type[Any]) -> Any:
    """The configuration as the author's class takes it: vLLM reads some kinds with a class of its own.

    Where transformers gives a class that only has the same name, because `auto_map` names no other, it stays that one.
    """
    config, wanted = model_config.hf_config, model_class.config_class
    if wanted is None or isinstance(config, wanted):
        return config
    text = config.get_text_config(decoder=True)
    if isinstance(text, wanted):
        return text
    if type(text).__name__ == wanted.__name__ and not type(text).__module__.startswith("vllm."):
        return text
    overrides = model_config.hf_overrides if isinstance(model_config.hf_overrides, dict) else {}
    own = wanted.from_pretrained(model_config.model, revision=model_config.revision)
    own.update(overrides)
    own.architectures = config.architectures
    return own


def class_of(model_config: Any) -> type[Any]:
    """The author's ``ForCausalLM``: the repository's own one where it has one, else transformers'."""
    config = model_config.hf_config
    own = (getattr(config, "auto_map", None) or {}).get("AutoModelForCausalLM")
    if own is None:
        from hfspeed.planner.load import model_class_of

        return model_class_of(config, model_config.model)
    if not model_config.trust_remote_code:
        raise SubjectError(f"{model_config.model} brings its own code ({own}); read it, then pass --trust-remote-code")
    from transformers.dynamic_module_utils import get_class_from_dynamic_module

    found: type[Any] = get_class_from_dynamic_module(
        own, model_config.model, revision=model_config.revision, code_revision=model_config.code_revision
    )
    return found
