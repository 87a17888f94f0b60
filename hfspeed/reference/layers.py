"""The layers of a built plan in plain torch: split, summed, gathered and packed, as slowly and clearly as possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from hfspeed.plan import shares
from hfspeed.plan.keywords import consume
from hfspeed.plan.ops import Activation, Attention, Norm
from hfspeed.reference.packing import Packing
from hfspeed.reference.ranks import Group
from hfspeed.refusal import Reason, Refusal, Refused


class Linear(nn.Module):
    """``x @ weight.T + bias`` with the own share of the outputs: `Column`, `Whole`, `Stacked` and `Heads`."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias) if bias is not None else None

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """``[..., inputs] -> [..., own outputs]``."""
        return functional.linear(value, self.weight, self.bias)


class WideLinear(Linear):
    """The same, in float32 whatever its weights are in."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """``[..., inputs]`` to ``[..., outputs]``."""
        return functional.linear(value, self.weight.float(), self.bias.float() if self.bias is not None else None)


class RowLinear(Linear):
    """Reads the own share of the inputs; the sum over ranks is whole, and the bias is added to it once."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, group: Group) -> None:
        super().__init__(weight, bias)
        self.group = group

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """``[..., own inputs] -> [..., outputs]``."""
        total = self.group.all_reduce(functional.linear(value, self.weight))
        return total if self.bias is None else total + self.bias


class GatedAct(nn.Module):
    """``act(first half) * second half`` of the last dimension."""

    def __init__(self, act: Activation) -> None:
        super().__init__()
        self.act = act

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """``[..., 2 * size] -> [..., size]``."""
        gate, up = value.chunk(2, -1)
        match self.act:
            case "silu":
                return functional.silu(gate) * up
            case "gelu":
                return functional.gelu(gate) * up
        return functional.gelu(gate, approximate="tanh") * up


class RmsNorm(nn.Module):
    """A root-mean-square norm; over the whole width even where a rank holds a share of it."""

    def __init__(self, op: Norm, weight: torch.Tensor | None, group: Group) -> None:
        super().__init__()
        self.op, self.group = op, group
        self.weight = nn.Parameter(weight) if weight is not None else None

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """``[..., size] -> [..., size]``, or the own share of both."""
        given, whole = value.dtype, gather(value, self.op.units, self.group)
        if whole.shape[-1] != self.op.size:
            raise ValueError(f"{self.op.path} norms {self.op.size} elements, but is given {whole.shape[-1]}")
        wide = whole.to(torch.promote_types(given, torch.float32))
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.op.eps)
        if self.weight is not None:
            wide = wide * (self.weight.to(wide) + (1.0 if self.op.weight == "one_plus" else 0.0))
        return keep(wide.to(given), self.op.units, self.group)


class TokenTable(nn.Module):
    """Rows of the token table; each rank knows its own tokens, and the sum knows all."""

    def __init__(self, weight: torch.Tensor, vocab: int, scale: float, group: Group) -> None:
        super().__init__()
        self.weight, self.vocab, self.scale, self.group = nn.Parameter(weight), vocab, scale, group

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """``[...]`` of token numbers ``-> [..., size]``."""
        start, stop = shares.vocabulary(self.vocab, self.group.rank, self.group.size)
        if bool((tokens < 0).any() or (tokens >= self.vocab).any()):
            raise IndexError(f"a token outside the table of {self.vocab} rows")
        mine = (tokens >= start) & (tokens < stop)
        rows = torch.cat([self.weight, self.weight.new_zeros(1, self.weight.shape[1])])
        own = rows[torch.where(mine, tokens - start, self.weight.shape[0])]
        return self.group.all_reduce(own) * self.scale


class OutputHead(Linear):
    """The own rows of the output projection, gathered over the ranks."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, vocab: int, group: Group) -> None:
        super().__init__(weight, bias)
        self.vocab, self.group = vocab, group

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """``[..., size] -> [..., vocab]``."""
        own = super().forward(value)
        if self.group.size == 1:
            return own
        # The last ranks may hold fewer rows; a gather wants equal ones.
        missing = -(-self.vocab // self.group.size) - own.shape[-1]
        every = self.group.all_gather(functional.pad(own, (0, missing)))
        return torch.cat(every, -1)[..., : self.vocab]


class CausalAttention(nn.Module):
    """Causal attention with scale, window, softcap, sinks and linear biases, over packed sequences with a cache."""

    is_hfspeed_attention = True

    def __init__(self, op: Attention, packing: Packing, group: Group) -> None:
        super().__init__()
        self.op, self.packing = op, packing
        ranks = group.size if op.split else 1
        self.heads = op.heads // ranks
        self.kv_heads = shares.span(op.kv_heads, 0, ranks)[1]
        self.repeats = self.heads // self.kv_heads
        self.key_size, self.value_size = op.head_size, op.value_size
        start, stop = shares.span(op.heads, group.rank if op.split else 0, ranks)
        self.slopes = torch.tensor(op.alibi[start:stop], dtype=torch.float64) if op.alibi else None
        self.turn = 0

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: object = None, **keywords: Any
    ) -> tuple[torch.Tensor, None]:
        """Attend.

        Args:
            query: ``[batch, own heads, tokens, head_size]``.
            key: ``[batch, own kv_heads, tokens, head_size]``.
            value: ``[batch, own kv_heads, tokens, value_size]``.
            mask: must be ``None``: what is seen follows from the plan and the packing.
            keywords: must agree with the plan.

        Returns:
            ``[batch, tokens, own heads, value_size]``, and ``None`` where weights would be.
        """
        if mask is not None:
            told = "the model hands its attention a mask of its own"
            raise Refused(Refusal("attention", Reason.MASK_NOT_CAUSAL, told, self.op.path))
        sinks = consume(self.op, keywords)
        assert sinks is None or isinstance(sinks, torch.Tensor)
        self._check(query, key, value)
        cache, self.turn = f"{self.op.path}/{self.turn}", (self.turn + 1) % self.op.calls
        if not self.packing.segments:
            return self._attend(query, key, value, sinks).transpose(1, 2).contiguous(), None
        done, start = [], 0
        for one in self.packing.segments:
            row = slice(start, start + one.tokens)
            keys, values = self.packing.remember(cache, one.sequence, key[:, :, row], value[:, :, row])
            done.append(self._attend(query[:, :, row], keys, values, sinks))
            start += one.tokens
        return torch.cat(done, 2).transpose(1, 2).contiguous(), None

    def _check(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        op, batch, tokens = self.op, query.shape[0], query.shape[2]
        if self.packing.segments:
            batch, tokens = 1, sum(one.tokens for one in self.packing.segments)
        wanted = (
            (batch, self.heads, tokens, op.head_size),
            (batch, self.kv_heads, tokens, op.head_size),
            (batch, self.kv_heads, tokens, op.value_size),
        )
        found = tuple(tuple(one.shape) for one in (query, key, value))
        if found != wanted:
            raise ValueError(f"{op.path} hands its attention query, key, value of {found}, expected {wanted}")

    def _attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, sinks: torch.Tensor | None
    ) -> torch.Tensor:
        """The newest ``query`` tokens against all keys of one sequence."""
        op, repeat = self.op, self.heads // self.kv_heads
        key, value = key.repeat_interleave(repeat, 1), value.repeat_interleave(repeat, 1)
        scores = torch.einsum("bhqd,bhkd->bhqk", query, key) * op.scale
        if op.softcap is not None:
            scores = op.softcap * torch.tanh(scores / op.softcap)
        known, new = key.shape[2], query.shape[2]
        behind = torch.arange(known - new, known)[:, None] - torch.arange(known)[None]
        if self.slopes is not None:
            scores = scores - self.slopes.to(scores)[:, None, None] * behind
        seen = (behind >= 0) & (behind < (op.window if op.window is not None else known))
        if op.chunk is not None:
            seen = seen & (torch.arange(known - new, known)[:, None] // op.chunk == torch.arange(known) // op.chunk)
        scores = scores.masked_fill(~seen, float("-inf"))
        if sinks is not None:
            extra = sinks.to(scores).reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)
            scores = torch.cat([scores, extra], -1)
        return torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1)[..., :known], value)


class Absent(nn.Module):
    """A module that lives on another stage: it returns what it is given.

    Keeps the plain attributes of the module it stands for, because a decoder may read them in its loop.
    """

    def __init__(self, module: nn.Module, *, tuple_output: bool = False, rest: int = 0) -> None:
        super().__init__()
        own = {"training", *vars(nn.Module())}
        for name, value in vars(module).items():
            if name not in own:
                setattr(self, name, value)
        self.tuple_output, self.rest = tuple_output, rest
        weight = module._parameters.get("weight")
        self.table = None if weight is None or weight.ndim != 2 else weight.data[:1]
        self.stands_for = (module,)  # in a tuple, so that it is no child

    def __getattr__(self, name: str) -> Any:
        """A child of the module that it stands for is elsewhere too, but a decoder may ask what it is."""
        child = self.__dict__["stands_for"][0]._modules.get(name) if "stands_for" in self.__dict__ else None
        return super().__getattr__(name) if child is None else Absent(child)

    def forward(self, *args: Any, **keywords: Any) -> Any:
        """The first argument, in a tuple where a layer gives one."""
        value = args[0] if args else next(iter(keywords.values()))
        if self.table is not None and isinstance(value, torch.Tensor) and not value.is_floating_point():
            value = self.table.new_zeros(*value.shape, self.table.shape[-1])  # of token ids, rows of a table
        return (value, *[None] * self.rest) if self.tuple_output else value


def gather(value: torch.Tensor, units: int, group: Group) -> torch.Tensor:
    """The whole of a value whose last dimension is split in ``units`` blocks (0: it is whole already)."""
    if not units or group.size == 1:
        return value
    every = group.all_gather(value)
    return torch.cat(every[:: max(1, group.size // units)], -1)


def keep(value: torch.Tensor, units: int, group: Group) -> torch.Tensor:
    """The own share of a whole value; undoes `gather`."""
    if not units or group.size == 1:
        return value
    start, stop = shares.span(units, group.rank, group.size)
    block = value.shape[-1] // units
    return value[..., start * block : stop * block]


Turn = Callable[[torch.Tensor], torch.Tensor]


def on_whole(module: nn.Module, whole: Turn, own: Turn) -> None:
    """Let a module see whole values where its caller has shares, and hand on the own share of what it gives.

    Hooks, so that the class and the names of its parameters stay the author's.

    Args:
        module: what is called with shares.
        whole: makes a whole value of a share. What is as wide as the first tensor, such as a gate, is a share as well.
        own: gives the own share of a whole value.
    """

    def collect(_: nn.Module, args: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, Any]:
        given = [value for value in (*args, *keywords.values()) if isinstance(value, torch.Tensor) and value.ndim]

        def gathered(value: Any) -> Any:
            shared = any(value is one for one in given) and value.shape[-1] == given[0].shape[-1]
            return whole(value) if shared else value

        return tuple(map(gathered, args)), {name: gathered(value) for name, value in keywords.items()}

    module.register_forward_pre_hook(collect, with_kwargs=True)
    module.register_forward_hook(lambda _module, _args, out: own(out))


def picked(tensor: torch.Tensor, spans: Sequence[shares.Span], dim: int = 0) -> torch.Tensor:
    """Some ranges of a tensor, in a tensor of their own."""
    return torch.cat([tensor.narrow(dim, start, stop - start) for start, stop in spans], dim)
