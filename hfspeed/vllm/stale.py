"""What modules keep beside the tree, looked at once more when vLLM's layers are there."""

from __future__ import annotations

from torch import nn

from hfspeed.errors import RefusedError
from hfspeed.planner.beside import kept, refused

OURS = ("vllm.", "hfspeed.vllm.")


def check(architecture: str, root: nn.Module) -> None:
    """Refuse a model that keeps a module or parameter which is no longer, or never was, in its tree.

    `hfspeed.planner.beside` says so already when it plans; what was exchanged is only known here.

    Args:
        architecture: for the message.
        root: the author's model, built.

    Raises:
        RefusedError: it keeps something of the kind.
    """
    known = {id(one) for one in (*root.modules(), *root.parameters())}
    found = {}
    for path, module in root.named_modules():
        if type(module).__module__.startswith(OURS):
            continue
        for name, one in kept(module):
            if id(one) not in known and _weighs(one):
                found[path, name] = refused(path, name, module, root)
    if found:
        raise RefusedError(architecture, tuple(found.values()))


def _weighs(one: object) -> bool:
    """Whether it is a parameter, or a module that has some and is not vLLM's own."""
    if isinstance(one, nn.Module):
        return any(True for _ in one.parameters()) and not type(one).__module__.startswith(OURS)
    return isinstance(one, nn.Parameter)
