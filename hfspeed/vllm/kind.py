"""Whether a model's sequences have states, attention or both: vLLM asks before it builds anything."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

from hfspeed.errors import HfspeedError
from hfspeed.plan import Attention, History, Plan, Recurrence

HYBRID, ATTENTION_FREE = "Hybrid", "AttentionFree"
_WORDS = re.compile(
    r"conv\d?d|recurren|\bssm|\bscan|delta_rule|\bkda|time_shift|\brnn|lstm|\bstate\b|cumsum|cumprod|decay|lightning"
    r"|\.roll\(|\.unbind\(|linear_attention",
    re.IGNORECASE,
)
_KNOWN: dict[tuple[str, str], str] = {}


def kind(model_config: Any) -> str:
    """``Hybrid``, ``AttentionFree``, or nothing for a model of attention alone, or one that cannot be served.

    The plan says so; it is made here at the latest, and kept for the engine. A model whose code mentions no state is
    not planned for this.
    """
    config = model_config.hf_config
    name = str(getattr(config, "architectures", None))
    key = (name, f"{model_config.model}@{model_config.revision}:{config.to_json_string()}")
    if key not in _KNOWN:
        _KNOWN[key] = _found(model_config)
    return _KNOWN[key]


def _found(model_config: Any) -> str:
    from hfspeed.planner.serve import plan_for
    from hfspeed.vllm.subject import class_of, config_of

    try:
        model_class = class_of(model_config)
        if not _mentions_states(model_class):
            return ""
        return of_plan(plan_for(config_of(model_config, model_class), model_class)[0])
    except HfspeedError:
        return ""  # told, with its reasons, when the model is built


def of_plan(plan: Plan) -> str:
    """What a plan's ops say."""
    if not any(isinstance(op, Recurrence | History) for op in plan.ops):
        return ""
    return HYBRID if any(isinstance(op, Attention) for op in plan.ops) else ATTENTION_FREE


def _mentions_states(model_class: type[Any]) -> bool:
    names = {owner.__module__ for owner in model_class.__mro__}
    names = {name for name in names if not name.startswith(("torch", "builtins", "transformers.modeling_utils"))}
    found = [sys.modules[name] for name in sorted(names) if name in sys.modules]
    for module in found:
        try:
            if _WORDS.search(inspect.getsource(module)):
                return True
        except (OSError, TypeError):
            return True
    return False
