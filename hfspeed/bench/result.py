"""What was measured, arm by arm, and the ratios that follow from it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from hfspeed.bench.arms import NATIVE
from hfspeed.bench.bounds import limits
from hfspeed.bench.measures import MEASURES, ONCE, ROUND, Measure
from hfspeed.bench.spread import Ratio, common_start, ratio


@dataclass
class Record:
    """One arm.

    Attributes:
        name / about: the arm's.
        once: figures measured once, by `ONCE` key.
        warm: figures of each warm start, by `WARM` key.
        rounds: figures of each round, by `ROUND` key.
        tokens: what each round generated, per request.
        raw: what the process told besides.
        error / log: why it failed, and its last lines; empty if it did not.
    """

    name: str
    about: str
    once: dict[str, float] = field(default_factory=dict)
    warm: list[dict[str, float]] = field(default_factory=list)
    rounds: list[dict[str, float]] = field(default_factory=list)
    tokens: list[list[list[int]]] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    log: str = ""

    def series(self, measure: Measure) -> list[float]:
        """The figure in every round that has it, or the one figure."""
        if measure in ONCE:
            return [self.once[measure.key]] if measure.key in self.once else []
        return [rates[measure.key] for rates in (*self.rounds, *self.warm) if measure.key in rates]

    def middle(self, measure: Measure) -> float | None:
        """The median of the figure."""
        values = self.series(measure)
        return median(values) if values else None


@dataclass
class Result:
    """A whole benchmark.

    Attributes:
        title: the model or preset.
        command: what was typed.
        job: what was measured, as data.
        machine: where, and with which versions.
        records: by arm, in the arms' order.
        interrupted: somebody pressed Ctrl-C; what is here was measured before.
        comparable: all arms had the same weights, so that their tokens can be compared.
        bounds: what the model needs and what the machine can do, as `hfspeed.bench.bounds` tells it; empty if unknown.
    """

    title: str
    command: str
    job: dict[str, Any]
    machine: dict[str, Any]
    records: list[Record] = field(default_factory=list)
    interrupted: bool = False
    comparable: bool = True
    bounds: dict[str, Any] = field(default_factory=dict)

    @property
    def native(self) -> Record | None:
        """The arm to compare with, if it measured anything."""
        found = next((one for one in self.records if one.name == NATIVE), None)
        return found if found is not None and (found.rounds or found.once) else None

    def others(self) -> list[Record]:
        """The arms that are compared with native."""
        return [record for record in self.records if record.name != NATIVE]

    def ratio(self, record: Record, measure: Measure) -> Ratio | None:
        """One arm beside native; above 1 is better, whatever is measured."""
        if self.native is None:
            return None
        return ratio(record.series(measure), self.native.series(measure), more=measure.more)

    def agreement(self, record: Record) -> float | None:
        """The share of tokens that come before the first one native does not have; the mean over rounds."""
        if self.native is None or not self.comparable or self.job.get("told"):
            return None
        shares = [common_start(a, b) for a, b in zip(record.tokens, self.native.tokens, strict=False)]
        return sum(shares) / len(shares) if shares else None

    def limits(self) -> dict[Measure, float]:
        """The highest rates that the machine allows, in the measures' units."""
        found = limits(self.bounds, int(self.job.get("prompts", 0)))
        return {measure: found[measure.key] for measure in ROUND if measure.key in found}

    def measures(self) -> list[Measure]:
        """Those of which there is a figure that is not nothing."""
        return [m for m in MEASURES if any(any(record.series(m)) for record in self.records)]

    def as_data(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        arms = {record.name: asdict(record) | {"ratios": self._ratios(record)} for record in self.records}
        return {
            "title": self.title,
            "command": self.command,
            "interrupted": self.interrupted,
            "weights_equal": self.comparable,
            "job": self.job,
            "machine": self.machine,
            "bounds": self.bounds | {"rates": {measure.key: limit for measure, limit in self.limits().items()}},
            "measures": [asdict(measure) for measure in MEASURES],
            "arms": arms,
        }

    def _ratios(self, record: Record) -> dict[str, Any]:
        found: dict[str, Any] = {"agreement": self.agreement(record)}
        for measure in self.measures():
            one = self.ratio(record, measure)
            if one is not None:
                found[measure.key] = asdict(one)
        return found
