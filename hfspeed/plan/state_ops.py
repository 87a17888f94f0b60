"""Ops of a plan for what mixes tokens by states: the stateful calls themselves, and the tensors that go with them."""

from __future__ import annotations

from dataclasses import dataclass

from hfspeed.plan.segments import Segment


@dataclass(frozen=True)
class Recurrence:
    """A stateful function of the tokens, which the module at ``path`` calls as ``name``; each sequence has a state.

    ``kind`` is what it computes; ``state`` is the shape of one sequence's state, and ``calls`` how many of them there
    are, because the call is run so often in a step. ``parameters`` are the names of its arguments, in order;
    ``settings`` the plain values it was called with, each as ``name=value``. ``pair``: a result comes with ``None``
    where a final state would be. With ``segments`` the first dimension of a state is split over the ranks.
    """

    path: str
    name: str
    kind: str
    state: tuple[int, ...]
    parameters: tuple[str, ...]
    settings: tuple[str, ...] = ()
    calls: int = 1
    pair: bool = False
    segments: tuple[Segment, ...] = ()


@dataclass(frozen=True)
class History:
    """A module that mixes tokens in a way that nobody knows; it is run on all tokens of a sequence at every step.

    ``inputs`` are the tensors it is called with, in order, and ``gives`` its results: ``1xTx64``, where ``T`` counts
    the tokens, or ``none`` for what does not follow them. What follows them is kept for every sequence. An ``eager``
    one attends by its author's own function, and is given ``masks`` of whole sequences: names of its arguments, with
    ``:window:32`` or ``:chunk:32`` where a mask hides more than later tokens, and ``:distance`` for distances.
    ``1xTx~16_int32`` are numbers of tokens: as many as the sequence has, up to 16, for each of its tokens.
    """

    path: str
    inputs: tuple[str, ...]
    gives: tuple[str, ...]
    masks: tuple[str, ...] = ()
    eager: bool = False


@dataclass(frozen=True)
class Share:
    """A parameter or buffer at ``path``, of which each rank holds its own part along ``dim``, segment by segment.

    One that is not ``stored`` comes from its author's constructor, not from a checkpoint.
    """

    path: str
    dim: int
    segments: tuple[Segment, ...]
    stored: bool = True
