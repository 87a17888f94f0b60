"""A subject looked at for its parallel plans: at full size on meta, and small, run on real numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hfspeed.errors import RefusedError
from hfspeed.graph.exact import Exact
from hfspeed.graph.record import Recording, record
from hfspeed.plan import Plan
from hfspeed.plan.styles import KINDS, StylePlans, attribute, generic, under
from hfspeed.planner.build import build, randomise
from hfspeed.planner.draft import draft
from hfspeed.planner.layers import layers_needed, without_layers
from hfspeed.planner.load import Subject
from hfspeed.planner.plan_forms import regular
from hfspeed.planner.prompts import prompt
from hfspeed.planner.shrink import shrink
from hfspeed.planner.simulate import TOKENS, Whole
from hfspeed.planner.study import Study, study
from hfspeed.planner.trial import depth_of
from hfspeed.planner.verdicts import Verdicts

RANKS = 2
"""Each way is tried on so many ranks; the whole plan is proven on more where sizes divide."""

TIED = "embed_tokens"
"""The name of the table that transformers splits where it is tied to the head."""


@dataclass
class Looked:
    """A subject looked at for its plans.

    Attributes:
        full: the model at full size, on meta.
        first: its plan before proofs: experts, stages, wrapper.
        whole: the small model with its own attention, and what it computes.
        recording: a run of that.
    """

    full: Study
    first: Plan
    whole: Whole
    recording: Recording

    @property
    def base(self) -> str:
        """The path of the base model."""
        return self.first.wrapper.base

    @property
    def spread(self) -> int:
        """The fewest ranks, but one, over which the small model's experts can be spread evenly."""
        return spread_of(self.whole.model)

    def has(self, names: Iterable[str]) -> bool:
        """Whether the small model has something of each of these full names, so that running it says something."""
        known = {generic(name) for name, _ in (*self.whole.model.named_modules(), *self.whole.model.named_parameters())}
        return all(name in known for name in names)

    @property
    def beside(self) -> dict[str, str]:
        """What transformers splits beside the configuration's plan: the head, and a table that is tied to it."""
        declared = under(self.base, declared_plans(config_of(self)).tp)
        return {name: style for name, style in self.whole.model.tp_plan.items() if name not in declared}


def spread_of(model: nn.Module) -> int:
    """The fewest ranks, but one, that divide the length of every stack of matrices."""
    owners = [module for module in model.modules() if not isinstance(module, nn.Conv1d)]
    counts = [one.shape[0] for module in owners for one in module.parameters(recurse=False) if one.ndim == 3]
    every = math.gcd(*counts)
    return next((number for number in range(2, every + 1) if every % number == 0), RANKS)


def declared_plans(config: Any) -> StylePlans:
    """What a configuration says, without the entry that transformers itself adds for tied embeddings.

    What has not the form of an entry is left out; see `odd_entries`.
    """
    plans = [regular(getattr(config, attribute(kind), None) or {}, kind) for kind in KINDS]
    own = getattr(type(config), attribute("tp"), None) or {}
    if getattr(config, "tie_word_embeddings", False) and TIED not in own:
        plans[0].pop(TIED, None)
    return StylePlans(*plans)


def config_of(seen: Looked) -> Any:
    """The configuration of the base model, which has the plans."""
    return getattr(seen.full.model.get_submodule(seen.base), "config", seen.full.model.config)


def look(subject: Subject, *, ranks: int = RANKS, stages: int = 2) -> Looked:
    """Build and run a subject, large and small; the small one has heads enough for ``ranks``, if the large one has.

    Raises:
        RefusedError: the forward does not run, or there are no layers.
        SubjectError: it cannot be built.
    """
    full = study(subject.model_class, subject.config, real=False)
    first, _ = draft(full, Verdicts())
    if not depth_of(full.model) and (no := without_layers(full.model)):
        raise RefusedError(subject.name, (no,))
    config = shrink(
        subject.config,
        subject.model_class,
        layers=layers_needed(first, stages),
        windows=full.windows,
        interface=full.interface,
        ranks=ranks,
        built=full.model,
    )
    model = build(subject.model_class, config, device="cpu", dtype=torch.float64, interface=False).double()
    randomise(model)
    with Exact():
        recording = record(model, prompt(model, TOKENS))
    return Looked(full, first, Whole(model), recording)
