"""Compiled artifacts that vLLM has saved and would not load: private in vLLM, and gone when it loads them itself."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch


def load_compiled(served: type) -> None:
    """Let vLLM load the compiled artifacts that it has saved of ``served``.

    vLLM 0.32 asks what it has loaded to finish loading, which only the functions of its own compiler backend can.
    Where another backend compiles, as on CPUs, it then gives up and compiles again at every start. Those functions
    have nothing to finish, so they are given a step that does nothing.
    """
    import torch
    from vllm.compilation import decorators

    theirs = decorators._try_load_aot_compiled_fn
    if getattr(theirs, "by_hfspeed", False):
        return
    load = torch.compiler.load_compiled_function

    def finished(*args: Any, **keywords: Any) -> Any:
        found = load(*args, **keywords)
        inner = getattr(getattr(found, "_artifacts", None), "compiled_fn", None)
        if inner is not None and not hasattr(inner, "finalize_loading"):
            inner.finalize_loading = lambda _: None
        return found

    def try_load(model: Any, path: str) -> Any:
        if not isinstance(model, served):
            return theirs(model, path)
        with patch.object(torch.compiler, "load_compiled_function", finished):
            return theirs(model, path)

    try_load.by_hfspeed = True  # type: ignore[attr-defined]
    decorators._try_load_aot_compiled_fn = try_load
