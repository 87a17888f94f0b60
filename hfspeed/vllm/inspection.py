"""How vLLM looks at a class before it builds it: private in vLLM, which starts another process for it."""

from __future__ import annotations

from typing import Any


def look_here(registry: Any, name: str) -> None:
    """Let vLLM look at the class registered as ``name`` in this process, where that does no harm.

    vLLM 0.32 imports a class in a process of its own to see what it supports, lest the import initialise a GPU that a
    fork could not use then; on a cold start that takes longer than all that we do. Without GPUs none is to fear.
    """
    from vllm.model_executor.models.registry import _LazyRegisteredModel, _ModelInfo
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return

    class Here(_LazyRegisteredModel):
        def inspect_model_cls(self) -> Any:
            """What the class supports."""
            return _ModelInfo.from_model_cls(self.load_model_cls())

    known = registry.models[name]
    registry.models[name] = Here(known.module_name, known.class_name)
