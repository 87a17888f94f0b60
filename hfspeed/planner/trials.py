"""What has been changed of a configuration so far, and whether its model still runs with a further change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hfspeed.errors import SubjectError
from hfspeed.planner.import_file import AUTHOR_ERRORS, told
from hfspeed.planner.remake import Spot, remake, spots
from hfspeed.planner.trial import TOKENS, Outcome, attempt


class Trials:
    """The values changed so far, and the trials that allowed them."""

    def __init__(self, config: Any, model_class: type[Any], interface: bool, ranks: int, built: Any = None) -> None:
        self.config, self.model_class, self.interface = config, model_class, interface
        self.ranks = ranks
        self.first = dict(spots(config))
        self.known: set[Spot] = set()
        self.values: dict[Spot, Any] = {}
        self.trials = 0
        self.runs = True
        self.now = attempt(model_class, config, interface=interface, built=built)
        if self.now.error and self.now.size:
            # the forward reads values, so it cannot run on meta: building must do until the model is small
            self.runs = False
            self.now = replace(self.now, error="")
        if self.now.error:
            raise SubjectError(self.now.error, self.now.place)

    def outcome(self, values: Mapping[Spot, Any], device: str = "meta", last: bool = False) -> Outcome:
        """What comes of the model with ``values`` too."""
        self.trials += 1
        try:
            changed = remake(self.config, {**self.values, **values})
        except AUTHOR_ERRORS as error:
            return Outcome(0, 0, error=told(error))
        runs = self.runs or device != "meta"
        return attempt(self.model_class, changed, device=device, run=runs, interface=self.interface, last=last)

    def keep(self, values: Mapping[Spot, Any], outcome: Outcome) -> None:
        """Change ``values``, from which ``outcome`` came."""
        self.values |= values
        self.now = outcome

    def take(self, values: Mapping[Spot, Any]) -> bool:
        """Change ``values`` if the model still runs and is no larger."""
        outcome = self.outcome(values)
        if outcome.error or outcome.size > self.now.size or outcome.depth != self.now.depth:
            return False
        if outcome.vocabulary < min(self.now.vocabulary, TOKENS):
            return False
        self.keep(values, outcome)
        return True

    def current(self) -> dict[Spot, Any]:
        """Every value as it now is."""
        return dict(spots(remake(self.config, self.values)))

    def hangs_on(self, values: Mapping[Spot, Any]) -> bool:
        """Whether the model is another size, or none, with ``values``."""
        outcome = self.outcome(values)
        return bool(outcome.error) or outcome.size != self.now.size

    def ids(self, limit: int) -> dict[Spot, Any]:
        """Special tokens that a vocabulary of ``limit`` no longer holds."""
        changed: dict[Spot, Any] = {}
        for spot, value in self.current().items():
            if not ("token_id" in spot[1] or "token_index" in spot[1]):
                continue
            if is_int(value) and value >= limit:
                changed[spot] = value % limit
            elif isinstance(value, list) and any(is_int(entry) and entry >= limit for entry in value):
                changed[spot] = [entry % limit if is_int(entry) else entry for entry in value]
        return changed


def is_int(value: object) -> bool:
    """Whether ``value`` is a number of something."""
    return isinstance(value, int) and not isinstance(value, bool)
