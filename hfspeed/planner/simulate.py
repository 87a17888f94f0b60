"""A plan of styles held against the model it is for: logits and gradients of simulated ranks, number by number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from hfspeed.graph.exact import Exact
from hfspeed.planner.import_file import AUTHOR_ERRORS, told
from hfspeed.planner.prompts import prompt
from hfspeed.planner.witness import distance
from hfspeed.reference.ranks import Group, Ranks, RanksError
from hfspeed.reference.styles import Styled, split, staged

TOKENS = 13
"""Prompt length: divides by no number of ranks, so that shares of tokens are uneven."""
BOUND = 1e-8
"""The relative error that refuses, in float64."""


@dataclass(frozen=True)
class Outcome:
    """What came of a run on ranks or stages.

    Attributes:
        logits: the largest relative error of any rank's logits; infinite where it does not run.
        gradients: the same of any parameter's gradient; ``None`` where none was asked for.
        worst: the parameter whose gradient is furthest off.
        error: why it does not run; empty where it does.
    """

    logits: float
    gradients: float | None = None
    worst: str = ""
    error: str = ""

    @property
    def equal(self) -> bool:
        """Whether all that was asked for agrees."""
        return self.logits <= BOUND and (self.gradients is None or self.gradients <= BOUND)

    def __str__(self) -> str:
        if self.error:
            return f"does not run: {self.error}"
        trained = "" if self.gradients is None else f", gradients within {self.gradients:.1e}"
        at = f" (`{self.worst}`)" if self.gradients is not None and self.gradients > BOUND else ""
        return f"logits within {self.logits:.1e}{trained}{at}"


@dataclass
class Whole:
    """The unsplit model with what it computes: logits, and the gradient of every parameter.

    Attributes:
        model: the author's small ``ForCausalLM`` in float64, with its own attention.
        names: every name of every parameter; tied ones have several.
    """

    model: Any
    logits: torch.Tensor = field(init=False)
    weights: torch.Tensor = field(init=False)
    gradients: dict[str, torch.Tensor] = field(init=False)
    names: dict[str, list[str]] = field(init=False)

    def __post_init__(self) -> None:
        owners: dict[int, list[str]] = {}
        for name, one in self.model.named_parameters(remove_duplicate=False):
            owners.setdefault(id(one), []).append(name)
        self.names = {names[0]: names for names in owners.values()}
        alone = Ranks(1).run(lambda _, group: self._ran(split(self.model, {}, group, train=True), True))[0]
        logits, grads = alone
        self.logits, self.gradients = logits, {n: g for n, g in grads.items() if n in self.names}

    def _ran(self, rank: Styled, train: bool) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        with Exact(), torch.set_grad_enabled(train):
            logits = rank.root(**prompt(self.model, TOKENS)).logits
            if not train:
                return logits, {}
            source = torch.Generator().manual_seed(7)
            weights = torch.randn(logits.shape, generator=source, dtype=torch.float64)
            (logits * weights).sum().backward()
        return logits.detach(), self._gradients(rank)

    def _gradients(self, rank: Styled) -> dict[str, torch.Tensor]:
        """One rank's gradients by first name: of tied parameters the sum, whole again where they are cut."""
        own = dict(rank.root.named_parameters(remove_duplicate=False))
        found: dict[str, torch.Tensor] = {}
        for first, names in self.names.items():
            seen: set[int] = set()
            for name in names:
                one = own[name]
                if id(one) in seen or not one.is_floating_point():
                    continue
                seen.add(id(one))
                grad = torch.zeros_like(one) if one.grad is None else one.grad
                if name in rank.late:
                    grad = rank.group.all_reduce(grad)
                if name in rank.cut:
                    grad = rank.cut[name].whole(rank.group.all_to_all([grad] * rank.group.size))
                found[first] = found[first] + grad if first in found else grad
        return found

    def ranks(self, plan: Mapping[str, str], ranks: int, *, train: bool = False) -> Outcome:
        """Run the model under a plan with full names on so many ranks."""

        def work(_: int, group: Group) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
            return self._ran(split(self.model, plan, group, train=train), train)

        try:
            with torch.set_grad_enabled(train):
                results = Ranks(ranks).run(work)
        except (*AUTHOR_ERRORS, RanksError) as error:
            return Outcome(math.inf, error=told(error))
        logits = max(distance(self.logits, found) for found, _ in results)
        if not train:
            return Outcome(logits)
        return Outcome(logits, *self._worst([grads for _, grads in results]))

    def _worst(self, found: Sequence[Mapping[str, torch.Tensor]]) -> tuple[float, str]:
        scale = max((float(g.abs().max()) for g in self.gradients.values() if g.numel()), default=1.0)
        return max(
            (
                (distance(wanted, grads[name], max(1e-6 * scale, 1e-30)), name)
                for grads in found
                for name, wanted in self.gradients.items()
            ),
            default=(0.0, ""),
        )

    def stages(self, base: str, names: Sequence[str], layers: str, head: str, stages: int) -> Outcome:
        """Run the model cut into stages, each of which gives its hidden states to the next."""
        hidden: torch.Tensor | None = None
        try:
            for stage in range(stages):
                root: Any = staged(self.model, base, names, layers, stage, stages, head)
                given = prompt(self.model, TOKENS)
                if hidden is not None:
                    del given["input_ids"]
                    given["inputs_embeds"] = hidden
                with Exact(), torch.no_grad():
                    if stage == stages - 1:
                        return Outcome(distance(self.logits, root(**given).logits))
                    result = root.get_submodule(base)(**given)
                hidden = result.last_hidden_state
        except AUTHOR_ERRORS as error:
            return Outcome(math.inf, error=told(error))
        raise ValueError(f"{stages} stages, expected at least one")
