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
    from vllm import ModelRegistry

    from hfspeed.vllm.versions import backend_names

    names = backend_names(ModelRegistry)
    fresh = [name for name, cls in names.items() if _place(ModelRegistry, name, cls)]
    if fresh:
        log.info(
            "hfspeed serves vLLM's transformers backend (%d architectures; HFSPEED=off switches it off)", len(names)
        )


def _place(registry: object, name: str, cls: str) -> bool:
    """Register one name; whether it was new."""
    known = registry.models.get(name)  # type: ignore[attr-defined]
    if getattr(known, "module_name", None) == MODELS:
        return False
    registry.register_model(name, f"{MODELS}:{cls}")  # type: ignore[attr-defined]
    return True
