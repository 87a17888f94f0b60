"""What vLLM keeps to itself about compiling: ahead of time, as one graph, and loaded again at the next start."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import torch

from hfspeed.vllm.versions import compiles


def whole_graphs(vllm_config: Any) -> bool:
    """Whether the model is compiled ahead of time, as one graph that vLLM does not cut: so it is on CPUs."""
    from vllm import envs
    from vllm.platforms import current_platform

    ahead = bool(envs.VLLM_USE_AOT_COMPILE) and vllm_config.compilation_config.backend == "inductor"
    return compiles(vllm_config) and current_platform.is_cpu() and ahead


@contextlib.contextmanager
def equal_graphs_only() -> Iterator[None]:
    """Let torch share what it compiled of a region with another one only if their graphs are equal in every word.

    torch compares the values that operations are called with, and not the names of the parameters they are for.
    """
    from torch._dynamo.variables import higher_order_ops

    theirs = higher_order_ops.are_same_graph_modules

    def equal(name: str, one: Any, other: Any, fake_mode: Any) -> bool:
        return _words(one) == _words(other) and bool(theirs(name, one, other, fake_mode))

    with patch.object(higher_order_ops, "are_same_graph_modules", equal):
        yield


def _words(graph: Any) -> list[tuple[str, str, str]]:
    """What each node of a graph calls, and how its arguments are laid out."""
    found = []
    for node in graph.graph.nodes:
        _, layout = torch.utils._pytree.tree_flatten((node.args, node.kwargs))
        found.append((node.op, str(node.target) if node.op == "call_method" else "", str(layout)))
    return found


def call_directly(layer: Any) -> None:
    """Let an attention layer of vLLM's compute at once, because what calls it is an operation already."""
    layer.use_direct_call = True


def operation(function: Callable[..., Any], shapes: Callable[..., Any]) -> Any:
    """Make ``function`` an operation ``torch.ops.vllm.<its name>``, which writes to nothing it is given."""
    from vllm.utils.torch_utils import direct_register_custom_op

    direct_register_custom_op(op_name=function.__name__, op_func=function, mutates_args=[], fake_impl=shapes)
    return getattr(torch.ops.vllm, function.__name__)


def load_compiled(served: type) -> None:
    """Let vLLM load the compiled artifacts that it has saved of ``served``.

    vLLM 0.32 asks what it has loaded to finish loading, which only the functions of its own compiler backend can.
    Where another backend compiles, as on CPUs, it then gives up and compiles again at every start. Those functions
    have nothing to finish, so they are given a step that does nothing.
    """
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
