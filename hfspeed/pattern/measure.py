"""What attention written by hand computes, found by running it: scale, cap, window, linear biases, heads."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import torch
import torch.nn.functional as F
from torch import nn

from hfspeed.graph.attend import causal
from hfspeed.graph.nodes import value_of
from hfspeed.pattern.layout import RESULT, laid
from hfspeed.pattern.replay import Unknown, replay
from hfspeed.pattern.scores import Operand, Written, refused
from hfspeed.pattern.unreached import vetted
from hfspeed.refusal import Reason

_SEED: Final = 20_017
_HIDDEN: Final = 1e3
"""A score this far below its neighbours has no weight."""
_CLOSE: Final = 1e-6
DECODER: Final = "an encoder cannot generate; configure it as a decoder (`is_decoder: true` in config.json)"


@dataclass(frozen=True)
class Measured:
    """What was found; as in the plan's op `Attention`."""

    scale: float
    window: int | None
    softcap: float | None
    alibi: tuple[float, ...] | None

    def keywords(self) -> dict[str, Any]:
        """As the attention interface would be told."""
        named = {"scaling": self.scale, "sliding_window": self.window, "softcap": self.softcap, "alibi": self.alibi}
        return {name: value for name, value in named.items() if value is not None}

    def within(self, window: int | None) -> Self:
        """The same with another window."""
        return replace(self, window=window)


def measure(one: Written) -> Measured:
    """Run the author's operations on random queries, keys and values, and compare with hypotheses.

    Raises:
        Refused: it is no causal attention that a serving kernel computes; says what it is instead.
    """
    probe = _Probe(one)
    try:
        found = probe.found()
        error = probe.error(found)
        vetted(one)
    except Unknown as unknown:
        told = "the scores get something that depends on weights besides query and key"
        raise refused(one.call, Reason.MASK_NOT_CAUSAL, told, unknown.node) from unknown
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as why:
        told = f"the operations around the softmax do not run alone: {str(why).splitlines()[0]}"
        raise refused(one.call, Reason.NO_INTERFACE, told, one.softmax) from why
    if not error < _CLOSE:
        told = f"it is no softmax attention with a scale, a cap and a mask: they differ by {error:.2g}"
        raise refused(one.call, Reason.NO_INTERFACE, told, one.last)
    return found


class _Probe:
    """The author's operations as functions of query, key and value in the interface's order."""

    def __init__(self, one: Written) -> None:
        self.one = one
        source = torch.Generator().manual_seed(_SEED)
        self.parts = [torch.randn(_shape(part), generator=source, dtype=torch.float64) for part in _operands(one)]

    def scores(self, scale: float) -> torch.Tensor:
        """What the softmax is given, ``[heads, tokens, tokens]``, for queries times ``scale``."""
        one, (query, key, value) = self.one, self.parts
        given = {one.query.node: _put(query * scale, one.query), one.key.node: _put(key, one.key)}
        if one.softmax is one.first:  # one function does all
            given[one.value.node] = _put(value, one.value)
            found = replay(one.softmax, given, {F.scaled_dot_product_attention: _scores})
        else:
            found = replay(one.softmax.all_input_nodes[0], given)
        return found.reshape(-1, *found.shape[-2:])

    def found(self) -> Measured:
        """The hypothesis that the scores suggest."""
        bias = self.scores(0.0)
        offset = bias - bias.diagonal(dim1=-2, dim2=-1)[..., None]
        hidden = ~(offset > -_HIDDEN)
        window = self._window(hidden)
        alibi = self._slopes(offset, hidden)
        seen = ~hidden.expand(self._products().shape)
        scale, cap = self._curve(bias, seen)
        return Measured(scale, window, cap, alibi)

    def error(self, found: Measured) -> float:
        """How far the author's result is from the hypothesis, on random values."""
        one, (query, key, value) = self.one, self.parts
        given = {part.node: _put(x, part) for part, x in zip(_operands(one), self.parts, strict=True)}
        theirs = laid(replay(one.last, given), one.layout, RESULT)
        ours = causal(nn.Identity(), query, key, value, None, **found.keywords())
        if theirs.shape != ours.shape:
            return math.inf
        error = float((theirs - ours).abs().max() / ours.abs().max())
        return error if math.isfinite(error) else math.inf

    def _window(self, hidden: torch.Tensor) -> int | None:
        """How many keys are seen, if the mask is causal and perhaps a band."""
        tokens = hidden.shape[-1]
        behind = torch.arange(tokens)[:, None] - torch.arange(tokens)[None]
        if not bool((hidden == hidden[:1]).all()):
            raise self._masked("heads see different tokens")
        mask = hidden[0]
        if not bool(mask[behind < 0].all()):
            raise self._masked("tokens see later ones", DECODER)
        gone = behind[mask & (behind >= 0)]
        window = int(gone.min()) if gone.numel() else tokens
        if not bool((mask == ((behind < 0) | (behind >= window))).all()):
            raise self._masked("what a token sees is no stretch of tokens that ends with itself")
        return window if window < tokens else None

    def _slopes(self, offset: torch.Tensor, hidden: torch.Tensor) -> tuple[float, ...] | None:
        """The linear bias of each head."""
        tokens = offset.shape[-1]
        ahead = (torch.arange(tokens)[None] - torch.arange(tokens)[:, None]).double()
        slopes = -offset[:, -1, -2]
        off = (offset - slopes[:, None, None] * ahead).masked_fill(hidden, 0.0)
        if not float(off.abs().max()) < 1e-5 * max(1.0, float(slopes.abs().max())):
            raise self._masked("the scores get a bias that is not linear in the distance")
        if not bool(slopes.any()):
            return None
        heads = _shape(self.one.query)[1]
        return tuple(float(s) for s in slopes.expand(heads))

    def _products(self) -> torch.Tensor:
        query, key, _ = self.parts
        key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
        return (query @ key.transpose(-1, -2))[0]

    def _curve(self, bias: torch.Tensor, seen: torch.Tensor) -> tuple[float, float | None]:
        """Scale and cap: scores are ``cap * tanh(scale * dot / cap)``, or ``scale * dot``."""
        products = self._products()[seen]

        def gained(factor: float) -> torch.Tensor:
            return (self.scores(factor) - bias).expand(seen.shape)[seen]

        tiny, one = gained(1e-4) / 1e-4, gained(1.0)
        scale = float((one * products).sum() / (products * products).sum())
        if torch.allclose(one, scale * products, rtol=1e-7, atol=1e-9):
            return self._snapped(scale), None
        scale = float((tiny * products).sum() / (products * products).sum())
        cap = float(gained(1e9).abs().max())
        if not torch.allclose(one, cap * torch.tanh(scale * products / cap), rtol=1e-4, atol=1e-6):
            told = "the scores are no multiple of query times key, with or without a cap"
            raise refused(self.one.call, Reason.NO_INTERFACE, told, self.one.softmax)
        return self._snapped(scale), _written_like(self.one.call.module, cap, 1e-6)

    def _snapped(self, scale: float) -> float:
        sizes = [_shape(part)[-1] for part in _operands(self.one)]
        usual: list[float] = [1.0, *(size**-0.5 for size in sizes)]
        nearest = min(usual, key=lambda known: abs(known - scale))
        if abs(nearest - scale) <= 1e-7 * abs(scale):
            return nearest
        return _written_like(self.one.call.module, scale, 1e-7)

    def _masked(self, found: str, help: str = "") -> Exception:
        return refused(self.one.call, Reason.MASK_NOT_CAUSAL, found, self.one.softmax, help)


def _operands(one: Written) -> tuple[Operand, Operand, Operand]:
    return one.query, one.key, one.value


def _shape(part: Operand) -> tuple[int, ...]:
    """The operand's shape in the interface's order."""
    return tuple(laid(torch.empty(value_of(part.node).shape, device="meta"), part.layout).shape)


def _put(x: torch.Tensor, part: Operand) -> torch.Tensor:
    """``x``, in the interface's order, as the author orders it."""
    return laid(x, "bhtd", part.layout).contiguous()


def _written_like(module: nn.Module, number: float, close: float) -> float:
    """The number of the module that was meant, or its inverse, if one is as near as measuring is exact."""
    own = [float(v) for v in vars(module).values() if isinstance(v, int | float) and not isinstance(v, bool) and v]
    known = [*own, *(1 / v for v in own), float(f"{number:.12g}")]
    nearest = min(known, key=lambda v: abs(v - number))
    return nearest if abs(nearest - number) <= close * abs(number) else number


def _scores(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,  # noqa: ARG001  torch's signature
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,  # noqa: ARG001  as above
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """What `F.scaled_dot_product_attention` gives its softmax."""
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    found = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        found = found.masked_fill(~torch.ones(found.shape[-2:], dtype=torch.bool).tril(), float("-inf"))
    if attn_mask is None:
        return found
    return found.masked_fill(~attn_mask, float("-inf")) if attn_mask.dtype is torch.bool else found + attn_mask
