"""A configuration of the same shape, small enough to run in milliseconds: sizes go down, floats and flags stay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hfspeed.errors import SubjectError
from hfspeed.planner.reducing import LIMIT, STEPS, Reducing
from hfspeed.planner.remake import PER_LAYER, Spot, overrides_of, remake
from hfspeed.planner.sizes import DEPTH, POSITIONS, VOCABULARY, override_sizes, standard_sizes
from hfspeed.planner.trial import TOKENS
from hfspeed.planner.trials import is_int


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


class _Search(Reducing):
    """The steps of shrinking that know usual names, and its end."""

    def __init__(self, config: Any, model_class: type[Any], interface: bool, ranks: int = 2, built: Any = None) -> None:
        super().__init__(config, model_class, interface, ranks, built)
        self.text = _text_path(config)

    # -- layers

    def cut(self, layers: int) -> None:
        """Cut the depth, by its usual name or by any integer that proves to be it, and every list per layer."""
        old = self.now.depth
        if old <= layers:
            return
        now = self.current()
        usual = [spot for spot, value in now.items() if spot[1] in DEPTH and spot[0] == self.text and is_int(value)]
        equal = [spot for spot, value in now.items() if value == old and is_int(value)]
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
            if is_int(value) and value > layers and "layers" in spot[1]
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

    # -- windows

    def windows(self, windows: frozenset[int]) -> None:
        """Integers, or entries of lists, that equal a window and do not change the size of the model."""
        small = {window: 8 + 4 * index for index, window in enumerate(sorted(windows))}
        small = {window: size for window, size in small.items() if size < window}
        for spot, value in self.current().items():
            sized = spot in self.values and is_int(value)
            if spot[0] != self.text or sized or "position" in spot[1] or spot[1] in POSITIONS:
                continue
            if is_int(value) and value in small:
                self.take_same({spot: small[value]})
            elif isinstance(value, list) and any(is_int(entry) and entry in small for entry in value):
                self.take_same({spot: [small.get(entry, entry) for entry in value]})

    def take_same(self, values: Mapping[Spot, Any]) -> None:
        outcome = self.outcome(values)
        if not outcome.error and outcome.size == self.now.size and outcome.depth == self.now.depth:
            self.keep(values, outcome)

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
