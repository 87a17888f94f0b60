"""A configuration of the same shape, small enough to run in milliseconds: sizes go down, floats and flags stay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from hfspeed.errors import SubjectError
from hfspeed.planner.import_file import AUTHOR_ERRORS, told
from hfspeed.planner.remake import PER_LAYER, Spot, overrides_of, remake, spots
from hfspeed.planner.sizes import DEPTH, POSITIONS, VOCABULARY, override_sizes, standard_sizes
from hfspeed.planner.trial import TOKENS, Outcome, attempt

LIMIT = 40_000_000
"""Elements that a shrunken model may have; more would not be proven in reasonable time."""
LARGE = 128
"""Integers above this that change the size of the model are worth reducing."""
STEPS = (64, 80, 96, 112, 128, 160, 192, 256)
FEWEST = 4
"""What is halved in step with a width may count heads, and fewer of them would not show how heads share keys."""
TRIALS = 300
"""Trials of the generic search; each builds the model and runs it once."""


def shrink(
    config: Any,
    model_class: type[Any],
    *,
    layers: int,
    windows: frozenset[int] = frozenset(),
    interface: bool = True,
    ranks: int = 2,
    built: Any = None,
) -> Any:
    """A small configuration of the same class and shape; ``config`` is not touched. ``built`` is its model, on meta.

    Layers are cut to the first ``layers`` (lists per layer too), attention windows in ``windows`` become 8, 12, …
    so that they act on short prompts, and heads stay enough for ``ranks`` where there are. Usual names of sizes are set
    first; then every other integer that changes the size of the model is reduced as long as the model builds and runs.
    The result is deterministic.

    Raises:
        SubjectError: the model does not run, or more than 40 million elements remain.
    """
    search = _Search(config, model_class, interface, ranks, built)
    search.cut(layers)
    search.names()
    search.windows(windows)
    search.reduce()
    return search.settled()


class _Search:
    """The values changed so far, and the trials that allowed them."""

    def __init__(self, config: Any, model_class: type[Any], interface: bool, ranks: int = 2, built: Any = None) -> None:
        self.ranks = ranks
        self.config, self.model_class, self.interface = config, model_class, interface
        self.text = _text_path(config)
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
        self.trials += 1
        try:
            changed = remake(self.config, {**self.values, **values})
        except AUTHOR_ERRORS as error:
            return Outcome(0, 0, error=told(error))
        runs = self.runs or device != "meta"
        return attempt(self.model_class, changed, device=device, run=runs, interface=self.interface, last=last)

    def keep(self, values: Mapping[Spot, Any], outcome: Outcome) -> None:
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

    # -- layers

    def cut(self, layers: int) -> None:
        """Cut the depth, by its usual name or by any integer that proves to be it, and every list per layer."""
        old = self.now.depth
        if old <= layers:
            return
        now = self.current()
        usual = [spot for spot, value in now.items() if spot[1] in DEPTH and spot[0] == self.text and _is_int(value)]
        equal = [spot for spot, value in now.items() if value == old and _is_int(value)]
        for spot in dict.fromkeys([*(spot for spot in usual if spot in equal), *equal, *usual]):
            for extra in self.depth_extras(now, spot, layers):
                values = {spot: layers, **extra}
                outcome = self.outcome(values)
                if not outcome.error and outcome.depth == layers:
                    self.keep(values, outcome)
                    return

    def depth_extras(self, now: Mapping[Spot, Any], depth: Spot, layers: int) -> Iterator[dict[Spot, Any]]:
        """What must change with the depth: lists per layer, and counts of layers, which keep their proportion."""
        old = now[depth]
        beside = {spot: value for spot, value in now.items() if spot[0] == depth[0] and spot != depth}
        lists: dict[Spot, Any] = {
            spot: type(value)(value[:layers])
            for spot, value in beside.items()
            if isinstance(value, (list, tuple)) and len(value) == old
        }
        lists |= {
            spot: {layer: own for layer, own in value.items() if layer < layers}
            for spot, value in beside.items()
            if spot[1] == PER_LAYER
        }
        counts = {
            spot: max(1, value * layers // old)
            for spot, value in beside.items()
            if _is_int(value) and value > layers and "layers" in spot[1]
        }
        yield from ({**counts, **lists}, lists, counts, {})

    # -- usual names

    def names(self) -> None:
        """All usual sizes at once; where that does not run, one by one."""
        config = remake(self.config, self.values)
        for name in self.text:
            config = getattr(config, name)
        values = vars(config)
        wanted = standard_sizes(values, self.ranks)
        self.known = {(self.text, name) for name in wanted}
        if overrides := overrides_of(config):
            wanted[PER_LAYER] = override_sizes(overrides, values, wanted)
        sizes = {(self.text, name): value for name, value in wanted.items() if values.get(name) != value}
        limit = min((sizes[spot] for spot in sizes if spot[1] in VOCABULARY), default=self.now.vocabulary)
        if not sizes or self.take({**sizes, **self.ids(limit)}):
            return
        for spot, value in sizes.items():
            if not self.take({spot: value, **self.ids(value if spot[1] in VOCABULARY else limit)}):
                self.known.discard(spot)  # it must keep step with something else

    def ids(self, limit: int) -> dict[Spot, Any]:
        """Special tokens that a vocabulary of ``limit`` no longer holds."""
        changed: dict[Spot, Any] = {}
        for spot, value in self.current().items():
            if not ("token_id" in spot[1] or "token_index" in spot[1]):
                continue
            if _is_int(value) and value >= limit:
                changed[spot] = value % limit
            elif isinstance(value, list) and any(_is_int(entry) and entry >= limit for entry in value):
                changed[spot] = [entry % limit if _is_int(entry) else entry for entry in value]
        return changed

    # -- windows

    def windows(self, windows: frozenset[int]) -> None:
        """Integers, or entries of lists, that equal a window and do not change the size of the model."""
        small = {window: 8 + 4 * index for index, window in enumerate(sorted(windows))}
        small = {window: size for window, size in small.items() if size < window}
        for spot, value in self.current().items():
            sized = spot in self.values and _is_int(value)
            if spot[0] != self.text or sized or "position" in spot[1] or spot[1] in POSITIONS:
                continue
            if _is_int(value) and value in small:
                self.take_same({spot: small[value]})
            elif isinstance(value, list) and any(_is_int(entry) and entry in small for entry in value):
                self.take_same({spot: [small.get(entry, entry) for entry in value]})

    def take_same(self, values: Mapping[Spot, Any]) -> None:
        outcome = self.outcome(values)
        if not outcome.error and outcome.size == self.now.size and outcome.depth == self.now.depth:
            self.keep(values, outcome)

    # -- everything else

    def reduce(self) -> None:
        """Any other large integer that the size hangs on: alone, with its equals, then in step with another."""
        seen: set[Spot] = set()
        while self.trials < TRIALS:
            large = [spot for spot, value in self.current().items() if self.is_large(spot, value) and spot not in seen]
            if not large:
                return
            seen.add(large[0])
            self.reduce_one(large[0])

    def is_large(self, spot: Spot, value: Any) -> bool:
        return _is_int(value) and value > LARGE and spot not in self.values and spot not in self.known

    def reduce_one(self, spot: Spot) -> None:
        now = self.current()
        old, size = now[spot], self.now.size
        outcome = self.outcome({spot: old // 2})
        if not outcome.error and outcome.size == size:
            return
        steps = [step for step in STEPS if step < old]
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
            if other == spot or not _is_int(value) or value < 2 * FEWEST:
                continue
            for shift in range(6, 0, -1):
                fewer = value >> shift
                if now[spot] >> shift < 64 or fewer < FEWEST or fewer % 2 or self.trials >= TRIALS:
                    continue
                if self.take({spot: now[spot] >> shift, other: value >> shift}):
                    return

    # -- the end

    def settled(self) -> Any:
        """The configuration, once a real run on it has passed."""
        if self.now.size > LIMIT:
            raise SubjectError(
                f"{self.model_class.__name__}: {self.now.size / 1e6:.0f} million parameters remain after shrinking "
                f"(at most {LIMIT // 10**6}); give it a configuration whose sizes are plain integers"
            )
        outcome = self.outcome({}, "cpu")
        if not outcome.error:
            return remake(self.config, {**self.values, **self.with_every_token()})
        for mended in self.mendings():
            if not self.outcome(mended, "cpu").error:
                return remake(self.config, {**self.values, **mended})
        at = f"{outcome.place}: " if outcome.place else ""
        told = f"{self.model_class.__name__} does not run with small sizes: {outcome.error}"
        raise SubjectError(f"{at}{told}; let sizes and dtypes follow from the configuration", outcome.place)

    def with_every_token(self) -> dict[Spot, Any]:
        """A mending by which the last token runs too, if one is needed: code may reckon with numbers of tokens."""
        if not self.outcome({}, "cpu", last=True).error:
            return {}
        for mended in self.mendings():
            outcome = self.outcome(mended, "cpu", last=True)
            if not outcome.error and outcome.size <= 4 * self.now.size:
                return mended
        return {}

    def mendings(self) -> Iterator[dict[Spot, Any]]:
        """What meta could not see: a table of positions that is too short, since there no index is out of range."""
        short = {spot: 2 * value for spot, value in self.values.items() if value in range(STEPS[0], TOKENS)}
        yield from ({spot: value} for spot, value in short.items())
        yield short
        for spot in reversed(self.values):
            if spot in self.first and self.outcome({spot: self.first[spot]}).size <= LIMIT:
                yield {spot: self.first[spot]}


def _text_path(config: Any) -> tuple[str, ...]:
    """The attribute, if any, that holds the text model's own configuration."""
    text = config.get_text_config(decoder=True)
    for name, value in vars(config).items():
        if value is text and text is not config:
            return (name,)
    return ()


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
