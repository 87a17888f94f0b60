"""What a stateful function is: its operands, how tokens lie in them, its state, and how it is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

ACTING = frozenset({
    "initial_states", "initial_state", "seq_idx", "cu_seqlens", "cu_seq_lens", "final_states_out", "head_first", "z",
    "residual", "cache_indices", "has_initial_state", "conv_states", "query_start_loc", "out", "norm_weight",
    "use_gate_in_kernel", "A_log", "lower_bound", "safe_gate", "transpose_state_layout", "state_v_first",
})  # fmt: skip
"""Arguments by which the libraries' functions do more than compute the recurrence from its first token on."""

Operands = Mapping[str, torch.Tensor | None]
Settings = Mapping[str, Any]


class Unsupported(Exception):  # noqa: N818  it says what was found; whoever asked makes it a refusal
    """A call asks for something that the kernel does not do; the text is one phrase."""


@dataclass(frozen=True)
class Bound:
    """The arguments of one call, sorted out.

    Attributes:
        operands: role -> tensor, or ``None`` where the author gives none.
        settings: name -> plain value, defaults included.
        pair: the author's function returns its final state as well, or ``None`` in its place.
        asked: the final state is asked for.
    """

    operands: dict[str, Any]
    settings: dict[str, Any]
    pair: bool
    asked: bool = False


class Kernel:
    """One kind of recurrence over tokens. Its numbers are those of one sequence, whatever the pieces it comes in.

    Attributes:
        kind: its name in a plan.
        functions: names by which libraries know it, each as a whole word at the end of a function's name.
        telling: names of arguments that no other function has together.
        tokens: operands that follow the tokens -> the dimension in which tokens lie; the first is ``[batch, …]``.
        whole: operands that are the same for every token.
        needed: operands that cannot be ``None``.
        aliases: what libraries call an operand -> its role here.
        usual: settings and the values they have where the author says nothing.
        free: arguments that change no number.
        wants_state: arguments that ask for the final state to be returned.
        always_pair: the function returns a pair whether asked or not.
        exact_state: the state is kept in float32, else in the dtype of the first operand.
        last_first: in vLLM's pages the last dimension of a state comes before the one ahead of it.
        follows: the result lies in memory as what it is made of does, as the library's; else it is contiguous.
        by_heads: the first dimension of a state counts heads or channels, none of which reads the state of another.
    """

    kind: ClassVar[str]
    functions: ClassVar[tuple[str, ...]]
    telling: ClassVar[frozenset[str]] = frozenset()
    tokens: ClassVar[Mapping[str, int]]
    whole: ClassVar[tuple[str, ...]] = ()
    needed: ClassVar[frozenset[str]]
    aliases: ClassVar[Mapping[str, str]] = {}
    usual: ClassVar[Mapping[str, Any]] = {}
    free: ClassVar[frozenset[str]] = frozenset()
    wants_state: ClassVar[frozenset[str]] = frozenset()
    always_pair: ClassVar[bool] = False
    exact_state: ClassVar[bool] = True
    last_first: ClassVar[bool] = False
    follows: ClassVar[bool] = False
    by_heads: ClassVar[bool] = True

    @property
    def roles(self) -> tuple[str, ...]:
        """All operands in their fixed order."""
        return (*self.tokens, *self.whole)

    def state(self, operands: Operands) -> tuple[int, ...]:
        """The shape of one sequence's state."""
        raise NotImplementedError

    def check(self, bound: Bound) -> None:
        """Raise `Unsupported` where shapes or settings are none that `run` takes."""

    def like(self, operands: Operands) -> torch.Tensor:
        """An operand that has the shape and the dtype of the result."""
        value = operands[next(iter(self.tokens))]
        assert value is not None
        return value

    def room(self, operands: Operands) -> torch.Tensor:
        """Memory for the result."""
        kept = torch.preserve_format if self.follows else torch.contiguous_format
        return torch.empty_like(self.like(operands), memory_format=kept)

    def run(self, operands: Operands, settings: Settings, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The result for some more tokens of each sequence of a batch, and the states behind them.

        Args:
            operands: by role.
            settings: as `usual` names them.
            state: ``[batch, *state]``; zeros before a sequence's first token.
        """
        raise NotImplementedError

    def advance(
        self, operands: Operands, settings: Settings, states: torch.Tensor, pages: torch.Tensor
    ) -> torch.Tensor:
        """The result for one more token of each sequence of a batch, whose states are changed where they lie.

        Args:
            operands: by role, one token each.
            settings: as `usual` names them.
            states: ``[pages, *state]``.
            pages: ``[batch]``, the page of each sequence.
        """
        result, after = self.run(operands, settings, states[pages])
        states[pages] = after.to(states.dtype)
        return result

    @property
    def axis(self) -> int:
        """The dimension of the result in which tokens lie."""
        return next(iter(self.tokens.values()))

    def bind(self, parameters: Sequence[str], args: Sequence[Any], keywords: Mapping[str, Any]) -> Bound:
        """Sort the arguments of a call.

        Args:
            parameters: how the author's function names its arguments, in order; ``a=q`` for an ``a`` that is ``q``.
            args: given by position.
            keywords: given by name. One that no library's function knows is dropped, as libraries do.

        Raises:
            Unsupported: an argument asks for something that the kernel does not do.
        """
        parameters, pair = _returned(parameters, self.always_pair)
        said = [name.partition("=") for name in parameters]
        names = [name for name, _, _ in said]
        roles = {**self.aliases, **{name: role for name, _, role in said if role}}
        given = dict(zip(names, args, strict=False)) | dict(keywords)
        if len(args) > len(parameters):
            raise Unsupported(f"{len(args)} arguments are given to a function of {len(parameters)}")
        operands: dict[str, Any] = dict.fromkeys(self.roles)
        settings, asked = dict(self.usual), False
        for name, value in given.items():
            role = roles.get(name, name)
            if role in operands and operands[role] is not None:
                raise Unsupported(f"`{role}` is given twice, once as `{name}`")
            if role in operands:
                operands[role] = value
            elif role in settings:
                settings[role] = tuple(value) if isinstance(value, list | tuple) else value
            elif name in self.wants_state:
                asked = asked or bool(value)
            elif name in self.free or value is None or value is False:
                continue
            elif name in ACTING or name in names:
                raise Unsupported(f"`{name}` is given, and the kernel does nothing with it")
        if missing := sorted(role for role in self.needed if operands[role] is None):
            raise Unsupported(f"`{missing[0]}` is not given")
        return Bound(operands, settings, pair or asked, asked)


ALONE, PAIR = "return=alone", "return=pair"
"""Stand behind the names of arguments where a hint says whether a result comes with a final state."""


def _returned(parameters: Sequence[str], usual: bool) -> tuple[Sequence[str], bool]:
    if parameters and parameters[-1] in {ALONE, PAIR}:
        return parameters[:-1], parameters[-1] == PAIR
    return parameters, usual


def heads_of(value: torch.Tensor, heads: int, dim: int) -> torch.Tensor:
    """Groups repeated until there are ``heads`` of them in ``dim``."""
    return value.repeat_interleave(heads // value.shape[dim], dim) if value.shape[dim] != heads else value
