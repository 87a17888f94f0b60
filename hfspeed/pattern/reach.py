"""How far attention written by hand looks back: masks and biases of a long prompt, without running scores on it."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from hfspeed.pattern.measure import Measured
from hfspeed.pattern.replay import Unknown, side, sides
from hfspeed.pattern.scores import Written, operands, refused
from hfspeed.refusal import Reason

_CROOKED = "the scores get a bias that over long distances is not linear in the distance"


def reach(short: Written, long: Written, tokens: int, found: Measured) -> int | None:
    """The window of an attention, in which a short prompt does not show what a long one would.

    Args:
        short: the attention as recorded with a short prompt, on which ``found`` was measured.
        long: the same as recorded with ``tokens`` tokens.
        tokens: so many that nothing can change behind them.
        found: what the short prompt showed.

    Raises:
        Refused: what the scores get is for long prompts of another kind than for short ones.
    """
    few, many = (sides(one.softmax, dict.fromkeys(operands(one))) for one in (short, long))
    names = [[(n.op, str(n.target), _floats(n)) for n in between] for between, _ in (few, many)]
    if names[0] != names[1]:
        told = "the scores are computed otherwise for long prompts"
        raise refused(long.call, Reason.VALUE_VARIES, told, long.softmax)
    windows = [found.window, *(_window(long, node, tokens) for node in many[1])]
    known = [window for window in windows if window is not None]
    if found.window is not None and min(known) != found.window:
        told = "a window of short prompts is none of long ones"
        raise refused(long.call, Reason.VALUE_VARIES, told, long.softmax)
    return min(known) if known else None


def _floats(node: fx.Node) -> tuple[Any, ...]:
    """The numbers that a recorded operation was called with, sizes aside."""
    return tuple(a for a in (*node.args, *node.kwargs.values()) if isinstance(a, float | bool))


def _window(long: Written, node: fx.Node, tokens: int) -> int | None:
    """The window that one value handed to the scores makes, if it makes one."""
    try:
        value = side(node)
    except Unknown as unknown:
        told = "the scores get something that depends on weights besides query and key"
        raise refused(long.call, Reason.MASK_NOT_CAUSAL, told, node) from unknown
    if bool((value == value.flatten()[0]).all()):
        return None  # also keeps the largest ones, room for scores, from being looked at further
    shape = tuple(value.shape)
    if shape[-2:] == (tokens, tokens):
        square = value.reshape(-1, tokens, tokens)
        found = {_band(long, node, one) for one in _distinct(square)}
        if len(found) > 1:
            raise refused(long.call, Reason.MASK_NOT_CAUSAL, "heads see different stretches of tokens", node)
        return found.pop()
    if shape[-1:] == (tokens,):
        _straight(long, node, value.double().reshape(-1, tokens))
    elif tokens in shape:
        told = "the scores are scaled differently at different positions"
        raise refused(long.call, Reason.VALUE_VARIES, told, node)
    return None


def _distinct(square: torch.Tensor) -> list[torch.Tensor]:
    """All masks, equal neighbours once."""
    found = [square[0]]
    for one in square[1:]:
        if not torch.equal(one, found[-1]):
            found.append(one)
    return found


def _band(long: Written, node: fx.Node, mask: torch.Tensor) -> int | None:
    """The window of one mask, which must depend on the distance alone; what a whole row gets does not count."""
    tokens, value = mask.shape[-1], mask.double()
    later = value[0, 1]  # what a token that comes later gets
    hidden = value == later if bool((value[0, 1:] == later).all()) else torch.zeros_like(value, dtype=torch.bool)
    if bool((value == later).all()):
        return None
    distance = torch.arange(tokens)[:, None] - torch.arange(tokens)[None]
    behind = hidden[-1].flip(0)  # by distance, from 0
    window = int(behind.nonzero()[0]) if bool(behind.any()) else tokens
    band = (distance < 0) | (distance >= window) if bool(hidden.any()) else hidden
    seen = torch.where(hidden, 0.0, value - value.diagonal()[:, None])
    wanted = seen[-1].flip(0)[distance.clamp(min=0)]
    close = (seen - wanted).abs() <= 1e-4 * max(1.0, float(seen.abs().max()))
    if not bool((hidden == band).all()):
        told = "what a token sees depends on more than the distance"
        raise refused(long.call, Reason.MASK_NOT_CAUSAL, told, node)
    if not bool((close | hidden | (distance < 0)).all()):
        raise refused(long.call, Reason.MASK_NOT_CAUSAL, _CROOKED, node)
    _straight(long, node, seen[-1, max(0, tokens - window) :][None])
    return window if window < tokens else None


def _straight(long: Written, node: fx.Node, rows: torch.Tensor) -> None:
    """Refuse rows that are not linear in the position of the key."""
    at = torch.arange(rows.shape[-1], dtype=torch.float64)
    slopes = (rows[:, -1:] - rows[:, :1]) / (rows.shape[-1] - 1)
    off = (rows - rows[:, :1] - slopes * at).abs().max()
    if not float(off) <= 1e-4 * max(1.0, float(rows.abs().max())):
        raise refused(long.call, Reason.MASK_NOT_CAUSAL, _CROOKED, node)
