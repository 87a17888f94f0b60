"""Table, notes, chart and JSON of results that are known."""

from __future__ import annotations

import json
import re
from io import StringIO
from xml.etree import ElementTree as ET

import pytest
from fakes import result

from hfspeed.bench.chart import chart
from hfspeed.bench.machine import in_short, machine
from hfspeed.bench.result import Result
from hfspeed.bench.table import notes, table

SPEEDS = {"native": 1.0, "hfspeed": 1.05, "unfused": 0.8, "peer": 0.92}
SVG = "{http://www.w3.org/2000/svg}"


def shown(one: Result) -> str:
    from rich.console import Console

    out = StringIO()
    Console(file=out, width=130).print(table(one))
    return out.getvalue()


def test_the_table_compares_with_native() -> None:
    text = shown(result(SPEEDS))
    row = next(line for line in text.splitlines() if line.strip().startswith("whole run"))
    assert re.findall(r"[\d.]+", row) == [
        "300", "0", "1.05", "1.05", "1.05", "0.80", "0.80", "0.80", "0.92", "0.92", "0.92",
    ]  # fmt: skip
    cpu = next(line for line in text.splitlines() if line.strip().startswith("CPU time, whole run"))
    assert "1.05" in cpu, "less is better, and above 1 is still better than native"
    assert "cold start" in text
    assert "100%" in text


def test_without_native_the_figures_are_absolute() -> None:
    one = result({"hfspeed": 1.0, "peer": 2.0})
    text = shown(one)
    assert re.search(r"whole run tok/s\s+300\s+600", text)
    assert "no ratios" in " ".join(notes(one))


def test_what_went_wrong_is_said() -> None:
    one = result(SPEEDS)
    one.records[1].error = "OutOfMemoryError: too large\nand more"
    one.interrupted, one.comparable = True, False
    told = list(notes(one))
    assert told[0] == "hfspeed failed after 5 rounds: OutOfMemoryError: too large"
    assert "Interrupted" in told[1]
    assert "not compared" in told[2]
    assert "same tokens" not in shown(one)


def test_tokens_that_arms_were_told_are_no_agreement() -> None:
    one = result(SPEEDS)
    assert "same tokens" in shown(one)
    one.job = one.job | {"told": True}
    assert "same tokens" not in shown(one)
    assert one.agreement(one.records[1]) is None
    assert any("told which token" in note for note in notes(one))


def test_nothing_measured_is_no_error() -> None:
    one = result({"native": 1.0}, rounds=0)
    one.records[0].once.clear()
    assert shown(one)
    ET.fromstring(chart(one))
    json.dumps(one.as_data())


def test_the_chart_has_the_right_bars() -> None:
    one = result(SPEEDS, noise=0.02)
    root = ET.fromstring(chart(one))
    bars = [bar for bar in root.iter(f"{SVG}rect") if bar.get("class") == "bar"]
    arms = ["hfspeed", "unfused", "peer"]
    assert [bar.get("data-arm") for bar in bars] == arms * (len(bars) // 3)
    line = next(float(line.get("x1", "")) for line in root.iter(f"{SVG}line") if line.get("class") == "native")
    scale = set()
    for bar in bars:
        x, width, ratio = (float(bar.get(name, "")) for name in ("x", "width", "data-ratio"))
        assert (x == pytest.approx(line, abs=0.2)) == (ratio >= 1), "better to the right, worse to the left"
        if abs(ratio - 1) > 0.05:
            scale.add(round(width / abs(ratio - 1)))
    assert max(scale) - min(scale) <= max(scale) * 0.02, "lengths are to scale"
    titles = {text.text for text in root.iter(f"{SVG}text")}
    assert {"Beside native vLLM: small & <odd>", "native", "prefill", "decode", "better than native →"} <= titles
    assert root.get("aria-label", "").count("hfspeed 1.0") >= 4


def test_the_chart_stays_within_its_frame() -> None:
    for speed in (0.05, 0.97, 1.0, 9.0):
        root = ET.fromstring(chart(result({"native": 1.0, "hfspeed": speed}, noise=0.1)))
        width, height = map(float, root.get("viewBox", "").split()[2:])
        for entry in root.iter(f"{SVG}rect"):
            x, y = float(entry.get("x", "")), float(entry.get("y", ""))
            assert x >= 0
            assert x + float(entry.get("width", "")) <= width
            assert y + float(entry.get("height", "")) <= height


def test_the_json_holds_everything() -> None:
    data = json.loads(json.dumps(result(SPEEDS).as_data()))
    assert data["arms"]["hfspeed"]["ratios"]["whole"]["middle"] == pytest.approx(1.05)
    assert data["arms"]["hfspeed"]["ratios"]["agreement"] == 1
    assert len(data["arms"]["peer"]["rounds"]) == 5
    assert data["arms"]["native"]["tokens"][0] == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert {"command", "machine", "job", "measures"} <= set(data)


def test_the_machine_and_its_versions() -> None:
    here = machine()
    assert here["cores"] >= 1
    assert here["memory_gib"] > 0
    assert {"torch", "transformers"} <= set(here["packages"])
    assert "torch" in in_short(here)
    json.dumps(here)
