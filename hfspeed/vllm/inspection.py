"""How vLLM looks at a class before it builds it: private in vLLM, which starts another process for it."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch


def look_here(registry: Any, name: str) -> None:
    """Let vLLM look at the class registered as ``name`` in this process, where that does no harm.

    vLLM 0.32 imports a class in a process of its own to see what it supports, lest the import initialise a GPU that a
    fork could not use then; on a cold start that takes longer than all that we do. Without GPUs none is to fear.
    """
    from vllm.model_executor.models import registry as theirs
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return

    class Here(theirs._LazyRegisteredModel):
        def inspect_model_cls(self) -> Any:
            """What the class supports; vLLM keeps the answer on disk, so that the next start need not import it."""
            with patch.object(theirs, "_run_in_subprocess", lambda look: look()):
                return super().inspect_model_cls()

    known = registry.models[name]
    registry.models[name] = Here(known.module_name, known.class_name)
