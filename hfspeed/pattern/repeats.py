"""How often each key and value head stands in what attention by hand is given: found by running what made them."""

from __future__ import annotations

import math
import operator

import torch
from torch import fx

from hfspeed.graph.flow import origins
from hfspeed.graph.nodes import module_of, value_of
from hfspeed.pattern.layout import laid
from hfspeed.pattern.replay import Unknown, replay
from hfspeed.pattern.scores import Operand, Written


def repeats(one: Written) -> int:
    """Neighbouring heads of key and value that are always equal; 1 if they are all their own."""
    found = math.gcd(_repeats(one.key), _repeats(one.value))
    return found if _heads(one.key) == _heads(one.value) == _heads(one.query) else 1


def _repeats(part: Operand) -> int:
    heads = _heads(part)
    source = torch.Generator().manual_seed(20_021)
    given = {
        node: torch.randn(value_of(node).shape, generator=source, dtype=torch.float64)
        for node in origins(part.node, _drawn)
        if _drawn(node)
    }
    if not given or part.node in given:
        return 1
    try:
        value: object = laid(replay(part.node, given), part.layout)
    except (Unknown, RuntimeError, TypeError, ValueError, IndexError, AttributeError):
        return 1  # kept whole: correct, and no smaller a cache than the author's
    if not isinstance(value, torch.Tensor):
        return 1  # it was stored into: what a store gives is not what it wrote
    able = [n for n in range(heads, 0, -1) if heads % n == 0]
    return next(n for n in able if torch.equal(value[:, ::n].repeat_interleave(n, 1), value))


def _drawn(node: fx.Node) -> bool:
    """Whether ``node`` may have any value: heads that are equal all the same are equal whatever it is.

    That is so of what weights make, of what comes from outside without a value, and of what modules on meta give,
    which nobody can run.
    """
    value = value_of(node)
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return False
    made = node.args[0] if node.target is operator.getitem else node  # a call that gives several is read part by part
    module = module_of(made) if isinstance(made, fx.Node) else None
    if module is not None and any(True for _ in module.parameters()):
        return True
    if node.meta.get("shadow") is not None:
        return False
    if module is not None:
        return any(buffer.is_meta for buffer in module.buffers())
    return value.is_meta and node.op in ("placeholder", "get_attr")


def _heads(part: Operand) -> int:
    return int(laid(value_of(part.node), part.layout).shape[1])
