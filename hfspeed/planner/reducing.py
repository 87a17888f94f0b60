"""Sizes that no usual name tells: any integer of a configuration that the size of its model hangs on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hfspeed.planner import nested
from hfspeed.planner.remake import PER_LAYER, Spot
from hfspeed.planner.sizes import POSITIONS, fitting
from hfspeed.planner.trial import TOKENS
from hfspeed.planner.trials import Trials, is_int

LIMIT = 40_000_000
"""Elements that a shrunken model may have; more would not be proven in reasonable time."""
LARGE = 128
"""Integers above this that change the size of the model are worth reducing."""
STEPS = (64, 80, 96, 112, 128, 160, 192, 256)
FEWEST = 4
"""What is halved in step with a width may count heads, and fewer of them would not show how heads share keys."""
LEAST = 8
"""As few of anything stay, where a model is still too large; experts are chosen several at a time."""
TRIALS = 300
"""Trials of this search; each builds the model and runs it once."""


class Reducing(Trials):
    """The search that goes by values alone."""

    def reduce(self) -> None:
        """Any other large integer that the size hangs on, then those in lists, then, if that is not enough, counts."""
        seen: set[Spot] = set()
        while self.trials < TRIALS:
            large = [spot for spot, value in self.current().items() if self.is_large(spot, value) and spot not in seen]
            if not large:
                break
            seen.add(large[0])
            self.reduce_one(large[0])
        self.reduce_inside()
        if self.now.size > LIMIT:
            self.reduce_counts()

    def is_large(self, spot: Spot, value: Any) -> bool:
        """Whether it is an integer worth reducing that nothing has reduced."""
        return is_int(value) and value > LARGE and spot not in self.values and spot not in self.known

    def reduce_inside(self) -> None:
        """Sizes in lists and in dictionaries."""
        for spot, value in self.current().items():
            known = spot[1] == PER_LAYER or spot in self.known
            for path in () if known else nested.sizes(value, LARGE):
                half, *steps = nested.smaller(self.current()[spot], path, LARGE, STEPS)
                if self.trials < TRIALS and self.hangs_on({spot: half}):
                    any(self.take({spot: step}) for step in steps)

    def reduce_one(self, spot: Spot) -> None:
        """One integer: alone, with its equals, then in step with another."""
        now = self.current()
        old = now[spot]
        if not self.hangs_on({spot: old // 2}):
            return
        steps = sorted({fitting(old, step, self.ranks) for step in STEPS if step < old} - {old})
        if spot[1] in POSITIONS:
            steps = [step for step in steps if step > TOKENS]
        equal = {other for other, value in now.items() if value == old and other != spot}
        # what had the same size at first should have it again: a second table of the same vocabulary
        again = [
            new for other, new in self.values.items() if self.first.get(other) == old and new in range(STEPS[0], old)
        ]
        steps = [*again, *steps]
        for step in steps:
            if self.take({spot: step}):
                return
            if old == self.now.vocabulary and self.take({spot: step, **self.ids(step)}):
                return
            if equal and self.take({**dict.fromkeys(equal, step), spot: step}):
                return
        self.reduce_in_step(spot, now)

    def reduce_in_step(self, spot: Spot, now: Mapping[Spot, Any]) -> None:
        """Halve together with one other integer, as often as it goes: a width and the head size that makes it up."""
        for other, value in now.items():
            if other == spot or not is_int(value) or value < 2 * FEWEST:
                continue
            for shift in range(6, 0, -1):
                fewer = value >> shift
                if now[spot] >> shift < 64 or fewer < FEWEST or fewer % 2 or self.trials >= TRIALS:
                    continue
                if self.take({spot: now[spot] >> shift, other: value >> shift}):
                    return

    def reduce_counts(self) -> None:
        """Whatever still can be fewer, as experts: alone, or an odd number of times with another."""
        for spot, value in self.current().items():
            if self.now.size <= LIMIT or self.trials >= 2 * TRIALS:
                return
            if not is_int(value) or value <= LEAST or spot in self.known or not self.hangs_on({spot: value // 2}):
                continue
            factors = [factor for factor in range(value // LEAST, 1, -1) if value % factor == 0]
            if any(self.take({spot: value // factor}) for factor in factors[:8]):
                continue
            self.reduce_oddly(spot, self.current())

    def reduce_oddly(self, spot: Spot, now: Mapping[Spot, Any]) -> None:
        """In step with another by what halves of both do not show: twenty heads become four."""
        odd = [factor for factor in (9, 7, 5, 3) if now[spot] % factor == 0 and now[spot] // factor >= LARGE // 2]
        for other, value in now.items():
            for factor in odd if other != spot and is_int(value) else ():
                if value % factor or value // factor < FEWEST or self.trials >= 2 * TRIALS:
                    continue
                if self.take({spot: now[spot] // factor, other: value // factor}):
                    return
