"""The plugin: put hfspeed's classes where vLLM looks for its transformers backend."""

from __future__ import annotations

import logging
import os

__all__ = ["register"]

OFF = "off"
MODELS = "hfspeed.vllm.models"


def register() -> None:
    """The ``vllm.general_plugins`` entry point: vLLM calls it in every process; safe to call twice.

    Names are registered as text, so nothing heavy is imported until vLLM asks for a class. With
    ``HFSPEED=off`` in the environment nothing is registered and vLLM's own backend serves.
    """
    log = logging.getLogger("vllm.hfspeed")
    if os.environ.get("HFSPEED", "").lower() == OFF:
        log.info("hfspeed is off (HFSPEED=%s): vLLM's own transformers backend serves", os.environ["HFSPEED"])
        return
    try:
        names, fresh = _register()
    except Exception:  # an error here would stop vLLM for every model, also for those that are none of our business
        log.exception(
            "hfspeed could not register with this vLLM, whose own transformers backend serves instead; "
            "hfspeed needs vLLM 0.32 or a later version that it knows; HFSPEED=off silences this"
        )
        return
    if fresh:
        log.info("hfspeed serves vLLM's transformers backend (%d architectures; HFSPEED=off switches it off)", names)


def _register() -> tuple[int, int]:
    """Register every name; how many there are, and how many of them were new."""
    from vllm import ModelRegistry

    from hfspeed.vllm.inspection import look_here
    from hfspeed.vllm.versions import ask_for_kind, backend_names, open_gate, use_full_heads

    names = backend_names(ModelRegistry)
    ours = {name for name, model in ModelRegistry.models.items() if getattr(model, "module_name", None) == MODELS}
    fresh = [name for name in names if name not in ours]
    for name in fresh:
        ModelRegistry.register_model(name, f"{MODELS}:{names[name]}")
        look_here(ModelRegistry, name)
    open_gate()
    ask_for_kind()
    use_full_heads()
    return len(names | dict.fromkeys(ours)), len(fresh)
