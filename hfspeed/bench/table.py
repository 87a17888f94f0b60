"""The table: native in figures, the others beside it in ratios, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hfspeed.bench.arms import NATIVE
from hfspeed.bench.measures import Measure
from hfspeed.bench.result import Record, Result
from hfspeed.bench.spread import scatter

if TYPE_CHECKING:
    from rich.table import Table

CAPTION = (
    "native in figures, ± half of what its own rounds lie apart; the others in ratios to it, medians over rounds with "
    "95 % intervals: in every row above 1 is better than native"
)


def table(result: Result) -> Table:
    """One row for each measure."""
    from rich import box
    from rich.table import Table

    native = result.native
    shown = Table(title=result.title, caption=CAPTION if native else None, caption_justify="left", box=box.SIMPLE_HEAD)
    shown.add_column("", min_width=20)
    for record in [native] if native else []:
        shown.add_column(record.name, justify="right", no_wrap=True)
    for record in _compared(result):
        shown.add_column(record.name, justify="right", no_wrap=True)
    for measure in result.measures():
        shown.add_row(f"{measure.title} [dim]{measure.unit}[/]", *_own(result, measure), *_cells(result, measure))
    for measure, limit in result.limits().items():
        shares = [record.middle(measure) for record in ([native] if native else []) + _compared(result)]
        told = [f"{share / limit:.0%}" if share else "" for share in shares]
        shown.add_row(f"{measure.title} [dim]of what the machine allows[/]", *told)
    shares = [result.agreement(record) for record in _compared(result)]
    if any(share is not None for share in shares):
        told = ["" if share is None else f"{share:.0%}" for share in shares]
        shown.add_row("same tokens", "", *told)
    return shown


def notes(result: Result) -> Iterator[str]:
    """What has to be said besides: failures, an early end, tokens that cannot be compared."""
    for record in result.records:
        if record.error:
            first = record.error.strip().splitlines()[0] if record.error.strip() else "no message"
            yield f"{record.name} failed after {len(record.rounds)} rounds: {first}"
    if result.interrupted:
        yield "Interrupted: the figures are of what was measured until then."
    if result.native is None and any(record.rounds for record in result.records):
        yield f"Without figures of {NATIVE} there are no ratios; figures are absolute."
    if why := result.bounds.get("needs", {}).get("unknown"):
        yield f"What the machine allows is not known: {why}"
    elif limits := result.limits():
        told = " and ".join(f"{limit:,.0f} {m.unit} ({m.title})" for m, limit in limits.items())
        yield f"The machine allows {told}: weights multiplied, or read, and nothing else done."
    if not result.comparable:
        yield "Dummy weights depend on how an arm stores them, so tokens are not compared."
    if result.job.get("told"):
        yield "Weights are random, so each request was told which token to write, the same in all arms."


def _compared(result: Result) -> list[Record]:
    return [record for record in result.others() if record.rounds or record.once]


def _own(result: Result, measure: Measure) -> list[str]:
    """Native's median, and how far its own rounds lie apart."""
    if result.native is None:
        return []
    middle = result.native.middle(measure)
    values = result.native.series(measure)
    apart = f" [dim]±{scatter(values) / 2:.0%}[/]" if len(values) > 1 else ""
    return [figure(middle, measure) + apart]


def _cells(result: Result, measure: Measure) -> Iterator[str]:
    for record in _compared(result):
        one = result.ratio(record, measure)
        if one is None:
            yield figure(record.middle(measure), measure) if result.native is None else ""
        elif one.rounds < 2:
            yield f"{one.middle:.2f}"
        else:
            colour = "green" if one.low >= 1 else "red" if one.high < 1 else "default"
            yield f"[{colour}]{one.middle:.2f}[/] [dim]({one.low:.2f}–{one.high:.2f})[/]"


def figure(value: float | None, measure: Measure) -> str:
    """An absolute figure without its unit."""
    return "" if value is None else f"{value:,.{measure.places}f}"
