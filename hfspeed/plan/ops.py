"""The closed vocabulary of a plan: what each module path becomes. Sizes are whole, before any split.

Every op has ``path``, the dotted name of the module it stands for, as in the state dict of the
``ForCausalLM`` (``model.layers.0.self_attn.qkv_proj``). Linear weights are ``[outputs, inputs]``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hfspeed.plan.linears import Column, Heads, Row, Stacked, Whole
from hfspeed.plan.segments import Segment
from hfspeed.plan.state_ops import History, Recurrence, Share

__all__ = [
    "OPS",
    "Activation",
    "Attention",
    "Column",
    "Embed",
    "ExpertAct",
    "Experts",
    "Gated",
    "Head",
    "Heads",
    "History",
    "Keep",
    "Local",
    "Norm",
    "NormWeight",
    "Op",
    "Positions",
    "Recurrence",
    "Rotary",
    "Row",
    "Share",
    "Stacked",
    "Table",
    "Whole",
]  # fmt: skip

Activation = Literal["silu", "gelu", "gelu_tanh"]
ExpertAct = Literal["silu", "gelu", "gelu_tanh", "relu", "relu2"]
NormWeight = Literal["none", "plain", "one_plus"]
Table = Literal["halves", "pairs", "half"]


@dataclass(frozen=True)
class Gated:
    """``act(first half) * second half`` of the last dimension, in one kernel. Has no weights."""

    path: str
    act: Activation


@dataclass(frozen=True)
class Norm:
    """A root-mean-square norm over the last dimension of ``size`` elements.

    ``weight``: no weight, ``w``, or ``1 + w``. With ``units`` the input is split over the ranks in that
    many blocks, so ranks gather it, norm it whole, and keep their own share.
    """

    path: str
    size: int
    eps: float
    weight: NormWeight
    units: int = 0


@dataclass(frozen=True)
class Rotary:
    """Query and key turned by position, in one kernel. Has no weights.

    Promises ``name``, called with query, key or ``None``, cosines and sines; it returns both. ``tokens`` is the
    dimension of query and key that counts tokens, of four. Cosines and sines are ``[..., tokens, size]``, each angle
    once (``half``), or twice: in both ``halves``, or side by side in ``pairs``. Elements that turn together are half a
    rotation apart or, ``interleaved``, neighbours; what lies beyond them stays. ``fresh``: nothing else reads the
    query and key that are given, so that they may be written over.
    """

    path: str
    tokens: int
    table: Table
    interleaved: bool
    fresh: bool


@dataclass(frozen=True)
class Positions:
    """A module without weights that gives, for each token, a function of its position alone: its rows are kept.

    ``given`` names the parameter of its forward that takes positions (``[1, tokens]``), ``value`` one that takes a
    value for dtype and place. Called with a word, ``word`` names that parameter, with a table for each of ``kinds``.
    Where ``counted``, it gives as many rows as there are tokens, for positions to look up; so it is let give all.
    """

    path: str
    given: str
    value: str = ""
    word: str = ""
    kinds: tuple[str, ...] = ()
    counted: bool = False
    limit: int = 0


@dataclass(frozen=True)
class Attention:
    """Causal attention of the module at ``path``, which is computed ``calls`` times in a step, always in one order.

    ``scale`` multiplies q·k; ``window`` counts keys seen, the own one included; ``chunk`` is the
    size of the chunks of positions that see only their own; ``softcap`` bounds scores;
    ``sinks`` names the parameter (one per head) that joins the softmax. ``alibi`` has each head's slope: a score
    loses that much per token of distance. ``split``: heads go over the ranks. ``measured``: the author computes it by
    hand, so the numbers were found by running that, and the emitted call hands none over. Each of several calls has
    keys and values of its own. ``by_mask``: window or chunk were read off the author's mask, and no keyword says so.
    """

    path: str
    heads: int
    kv_heads: int
    head_size: int
    value_size: int
    scale: float
    window: int | None = None
    softcap: float | None = None
    sinks: str | None = None
    split: bool = True
    alibi: tuple[float, ...] | None = None
    measured: bool = False
    calls: int = 1
    chunk: int | None = None
    by_mask: bool = False


@dataclass(frozen=True)
class Experts:
    """A module that sends each token through ``top_k`` of ``count`` feed-forward networks and adds up what they give.

    It is called with tokens ``[tokens, inputs]``, the numbers of the experts chosen and their weights, both
    ``[tokens, top_k]``; ``takes`` are its names for the three. Who is chosen, and what weights, is the author's code.

    With gate ``g`` and up ``u``, both ``inner`` wide, an expert gives ``down(act(g) * u)``; without ``gated``,
    ``down(act(u))``. ``up`` names the parameters of gate and up: one that holds both (``interleaved``: row by row, else
    one half each; ``swapped``: up comes first), or two. Matrices are ``[count, outputs, inputs]``, and
    ``[count, inputs, outputs]`` where ``turned``. With ``limit`` g is at most that, and u within it on both sides;
    ``alpha`` multiplies g inside a silu's sigmoid; ``beta`` is added to u. With ``skips`` an expert's number of
    ``count`` means none; with ``weighs_input`` weights multiply what an expert reads, not what it gives. ``apart``: the
    author's is a list of modules, and names are those in each of them; the block was rewritten to call the list.
    """

    path: str
    count: int
    top_k: int
    inputs: int
    inner: int
    act: ExpertAct
    takes: tuple[str, ...]
    up: tuple[str, ...]
    down: str
    up_bias: tuple[str, ...] = ()
    down_bias: str | None = None
    gated: bool = True
    interleaved: bool = False
    swapped: bool = False
    turned: bool = False
    limit: float | None = None
    alpha: float = 1.0
    beta: float = 0.0
    skips: bool = False
    weighs_input: bool = False
    apart: bool = False


@dataclass(frozen=True)
class Embed:
    """The token table ``[vocab, size]``, split over the vocabulary; its rows are multiplied by ``scale``."""

    path: str
    vocab: int
    size: int
    scale: float = 1.0


@dataclass(frozen=True)
class Head:
    """The output projection ``[vocab, size]``, split over the vocabulary; what the wrapper does follows it."""

    path: str
    vocab: int
    size: int
    bias: bool


@dataclass(frozen=True)
class Keep:
    """A module with parameters or buffers of its own that stays as its author wrote it, on every rank.

    With ``units`` its input is split over the ranks: they gather it, run it whole, and keep their share.
    With ``gives`` it decides by values, so it and all below it run outside of compiled graphs; ``gives`` are the shapes
    of its results for ``T`` tokens, as in ``("1xTx64", "Tx8_float32")``: one tensor, or a tuple of several, among which
    may be ``none`` and plain ``values``.
    """

    path: str
    units: int = 0
    gives: tuple[str, ...] = ()


@dataclass(frozen=True)
class Local:
    """An integer attribute of the module at ``path`` that counts split things: each rank has its share.

    Where it counts things of several kinds, ``segments`` say how each is split.
    """

    path: str
    attribute: str
    whole: int
    segments: tuple[Segment, ...] = ()


Op = (
    Column | Row | Whole | Stacked | Heads | Gated | Norm | Rotary | Positions | Attention | Recurrence | History
    | Experts | Embed | Head | Keep | Share | Local
)  # fmt: skip
OPS: tuple[type, ...] = (
    Column, Row, Whole, Stacked, Heads, Gated, Norm, Rotary, Positions, Attention, Recurrence, History,
    Experts, Embed, Head, Keep, Share, Local,
)  # fmt: skip
