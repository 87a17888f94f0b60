"""The chart: for each measure a bar for each arm, from native's line to the right if it is better, else to the left."""

from __future__ import annotations

import math
from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from hfspeed.bench.measures import Measure
from hfspeed.bench.result import Record, Result
from hfspeed.bench.spread import Ratio

SHOWN = ("prefill", "decode", "whole", "whole_cpu", "first", "gap", "warm_start", "cold_start", "peak")
COLOURS = ("#3fb68b", "#b9bec4", "#e8a552", "#7d9fdc")
WIDTH, LEFT, RIGHT, TOP = 760, 190, 70, 92
BAR, SPACE, BETWEEN = 13, 3, 16
STEPS = (0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0, 2.0)

# One grey that can be read on white and on black: a file cannot know on which it will be shown.
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #757b82 }
.title { font-size: 17px; font-weight: 600 }
.name { font-weight: 600 }
.tick { stroke: #80868b; stroke-opacity: .25 }
.native { stroke: #757b82; stroke-width: 2 }
.range { stroke: #5d6268; stroke-width: 2 }
.small { font-size: 11px }
"""


def chart(result: Result) -> str:
    """An SVG that needs no words around it and stands on light and on dark ground."""
    rows = [
        (measure, [(record, one) for record in result.others() if (one := result.ratio(record, measure))])
        for measure in result.measures()
        if measure.key in SHOWN
    ]
    rows = sorted((row for row in rows if row[1]), key=lambda row: SHOWN.index(row[0].key))
    reach = _reach([one for _, bars in rows for _, one in bars])
    arms = [record for record in result.others() if any(record is r for _, bars in rows for r, _ in bars)]
    colours = {record.name: COLOURS[number % len(COLOURS)] for number, record in enumerate(arms)}
    height = TOP + sum(len(bars) * (BAR + SPACE) + BETWEEN for _, bars in rows) + 34
    spoken = quoteattr(_spoken(result, rows))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label={spoken}>',
        f"<style>{STYLE}</style>",
        *_heading(result, colours),
        *_scale(reach, height),
        *_rows(rows, colours, reach),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _reach(ratios: list[Ratio]) -> float:
    """How far the scale goes to either side of 1."""
    far = max((abs(value - 1) for one in ratios for value in (one.low, one.middle, one.high)), default=0.0)
    return max(0.05, math.ceil(far * 1.02 / 0.05) * 0.05)


def _x(value: float, reach: float) -> float:
    middle, half = (LEFT + WIDTH - RIGHT) / 2, (WIDTH - LEFT - RIGHT) / 2
    return middle + (value - 1) / reach * half


def _heading(result: Result, colours: dict[str, str]) -> Iterator[str]:
    yield f'<text class="title" x="16" y="28">Beside native vLLM: {escape(result.title)}</text>'
    about = {record.name: record.about for record in result.records}
    x = 16.0
    for name, colour in colours.items():
        told = f"{name} ({about[name]})" if name != "hfspeed" else name
        yield f'<rect class="key" x="{x:.0f}" y="43" width="12" height="12" rx="2" fill="{colour}"/>'
        yield f'<text x="{x + 18:.0f}" y="54">{escape(told)}</text>'
        x += 34 + 6.6 * len(told)


def _scale(reach: float, height: int) -> Iterator[str]:
    """Ticks, native's line, and which way is better."""
    step = next((step for step in STEPS if reach / step <= 4), reach)
    for number in range(-int(reach / step + 1e-9), int(reach / step + 1e-9) + 1):
        value = 1 + number * step
        x = _x(value, reach)
        kind = "native" if number == 0 else "tick"
        yield f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{height - 22}"/>'
        told = "native" if number == 0 else f"{value:.2f}"
        yield f'<text class="small" x="{x:.1f}" y="{height - 8}" text-anchor="middle">{told}</text>'
    yield f'<text class="small" x="{_x(1, reach) - 8:.1f}" y="{TOP - 12}" text-anchor="end">← worse than native</text>'
    yield f'<text class="small" x="{_x(1, reach) + 8:.1f}" y="{TOP - 12}">better than native →</text>'


def _rows(
    rows: list[tuple[Measure, list[tuple[Record, Ratio]]]], colours: dict[str, str], reach: float
) -> Iterator[str]:
    y = TOP + 4.0
    for measure, bars in rows:
        middle = y + len(bars) * (BAR + SPACE) / 2 + 3
        yield f'<text class="name" x="16" y="{middle:.1f}">{escape(measure.title)}</text>'
        for record, one in bars:
            yield from _bar(one, record.name, colours[record.name], y, reach)
            y += BAR + SPACE
        y += BETWEEN


def _bar(one: Ratio, name: str, colour: str, y: float, reach: float) -> Iterator[str]:
    start, end = sorted((_x(1, reach), _x(one.middle, reach)))
    yield (
        f'<rect class="bar" data-arm="{escape(name)}" data-ratio="{one.middle:.4f}" x="{start:.1f}" y="{y:.1f}" '
        f'width="{max(end - start, 1):.1f}" height="{BAR}" rx="2" fill="{colour}"/>'
    )
    if one.rounds > 1:
        low, high, at = _x(one.low, reach), _x(one.high, reach), y + BAR / 2
        ends = f"M{low:.1f} {at - 3:.1f}v6m0-3H{high:.1f}m0-3v6"
        yield f'<path class="range" fill="none" d="{ends}"/>'
    yield f'<text class="small" x="{WIDTH - RIGHT + 12}" y="{y + BAR - 2:.1f}">{one.middle:.2f}</text>'


def _spoken(result: Result, rows: list[tuple[Measure, list[tuple[Record, Ratio]]]]) -> str:
    """The same in words, for who cannot see it."""
    told = [f"{m.title}: " + ", ".join(f"{r.name} {one.middle:.2f}" for r, one in bars) for m, bars in rows]
    return f"{result.title} beside native vLLM, above 1 is better. {'; '.join(told)}"
