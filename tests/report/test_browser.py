"""The page in a real browser: no network, no errors, nothing wider than the screen, by mouse and by keyboard.

Needs playwright and a Chromium, in ``PATH`` or where HFSPEED_CHROMIUM says; without them it is skipped.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright")

from playwright import sync_api as api

from hfspeed.report.card import card
from hfspeed.report.page import page as rendered

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 375, "height": 740}
CONTRAST = """() => {
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, at) => sum + v * [.2126, .7152, .0722][at], 0);
  const ground = one => {
    for (; one; one = one.parentElement) {
      const colour = rgb(getComputedStyle(one).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const low = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const one = walker.currentNode.parentElement, text = walker.currentNode.data.trim();
    if (!text || !one.checkVisibility() || one.closest("svg, script, .hidden, .skip")) continue;
    const [a, b] = [light(rgb(getComputedStyle(one).color)), light(ground(one))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < 4.5) low.push([one.className || one.tagName, text.slice(0, 30), ratio.toFixed(2)]);
  }
  return low;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    found = os.environ.get("HFSPEED_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium; set HFSPEED_CHROMIUM to one")
    with api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, subject: Any, hostile: Any) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    texts = {"page.html": rendered(subject), "hostile.html": rendered(hostile), "card.svg": card(subject)}
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    return {name: folder / name for name in texts}


@pytest.fixture(params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def opened(browser: Any, file: Path, size: dict[str, int], scheme: str) -> tuple[Any, list[str]]:
    """A page, and what it complains about or asks the network for."""
    context = browser.new_context(viewport=size, color_scheme=scheme, offline=True)
    page, faults = context.new_page(), []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith("file://") else faults.append(request.url))
    page.goto(file.as_uri())
    return page, faults


@pytest.mark.parametrize("name", ["page.html", "hostile.html"])
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_fits_and_is_readable(
    browser: Any, files: dict[str, Path], name: str, size: dict[str, int], scheme: str
) -> None:
    page, faults = opened(browser, files[name], size, scheme)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    page.evaluate("document.querySelectorAll('.unfold').forEach(one => one.click())")
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert page.evaluate(CONTRAST) == []
    assert page.title() != "owned"
    assert faults == []
    page.context.close()


def test_the_other_colours(browser: Any, files: dict[str, Path], scheme: str) -> None:
    page, faults = opened(browser, files["page.html"], DESK, scheme)
    ground = "getComputedStyle(document.body).backgroundColor"
    before, button = page.evaluate(ground), page.locator("#theme")
    other = {"light": "Dark", "dark": "Light"}[scheme]
    assert button.inner_text() == other
    button.click()
    assert page.evaluate(ground) != before
    assert page.evaluate(CONTRAST) == []
    button.click()
    assert page.evaluate(ground) == before
    assert faults == []
    page.context.close()


def test_every_section_by_its_link(browser: Any, files: dict[str, Path]) -> None:
    page, _ = opened(browser, files["page.html"], PHONE, "light")
    links = page.locator("nav a")
    boxes = [links.nth(at).bounding_box() for at in range(links.count())]
    assert all(one["x"] + one["width"] <= other["x"] + 1 for one, other in pairwise(boxes))
    for at in range(links.count()):
        name = links.nth(at).get_attribute("href")
        links.nth(at).click()
        box = page.locator(name).bounding_box()
        bar = page.locator("nav").bounding_box()
        assert box["y"] >= bar["y"] + bar["height"] - 1, name
        assert box["y"] < PHONE["height"], name
    page.context.close()


def test_by_keyboard(browser: Any, files: dict[str, Path]) -> None:
    page, _ = opened(browser, files["page.html"], DESK, "light")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.url.endswith("#main")
    second = page.locator("details.rewritten").nth(1)
    assert second.get_attribute("open") is None
    second.locator("summary").focus()
    page.keyboard.press("Enter")
    assert second.get_attribute("open") is not None
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    unfold = page.locator(".unfold").first
    folded = page.locator("tbody.folded").first
    assert not folded.is_visible()
    unfold.focus()
    page.keyboard.press("Space")
    assert folded.is_visible()
    page.context.close()


def test_both_sides_of_a_change(browser: Any, files: dict[str, Path]) -> None:
    """Side by side where there is room; else what is gone above what is new, and equal lines once."""
    for size, beside in ((DESK, True), (PHONE, False)):
        page, _ = opened(browser, files["page.html"], size, "light")
        row = page.locator("tr.other", has=page.locator("td.gone")).filter(has=page.locator("td.new")).first
        gone, new = row.locator("td.gone").bounding_box(), row.locator("td.new").bounding_box()
        assert (new["x"] > gone["x"]) is beside
        assert (new["y"] > gone["y"]) is not beside
        assert page.locator("tr.same td.right").first.is_visible() is beside
        page.context.close()


def test_without_scripts_nothing_is_hidden(browser: Any, files: dict[str, Path]) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(files["page.html"].as_uri())
    assert page.locator("tbody.folded").first.is_visible()
    assert not page.locator("#theme").is_visible()
    context.close()


def test_the_picture_is_drawn(browser: Any, files: dict[str, Path], scheme: str) -> None:
    page, faults = opened(browser, files["card.svg"], DESK, scheme)
    fill = page.evaluate("getComputedStyle(document.querySelector('.ground')).fill")
    assert fill == {"light": "rgb(255, 255, 255)", "dark": "rgb(15, 19, 24)"}[scheme]
    wide = "Math.max(...[...document.querySelectorAll('text')].map(one => one.getBBox().x + one.getBBox().width))"
    assert page.evaluate(wide) <= 760
    assert faults == []
    page.context.close()
