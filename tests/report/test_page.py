"""The page by its structure: everything is there, links lead somewhere, and nothing from outside is run."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from hfspeed.plan.text import refused
from hfspeed.report.blocks import WORDS
from hfspeed.report.card import card
from hfspeed.report.page import page
from hfspeed.report.sides import sides

VOID = {"meta", "link", "br", "img", "col", "rect", "input", "hr"}


class Tree(HTMLParser):
    """Elements with their attributes, and the text; complains about what is not closed as it was opened."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(attrs) == len(dict(attrs)), f"an attribute twice in {tag}"
        self.found.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.found if name == tag]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(scope="module")
def tree(html: str) -> Tree:
    return Tree(html)


def test_landmarks(tree: Tree) -> None:
    assert [len(tree.all(tag)) for tag in ("main", "header", "nav", "footer", "h1")] == [1] * 5
    assert tree.all("html") == [{"lang": "en"}]
    names = [section["aria-labelledby"] for section in tree.all("section")]
    assert names == ["short", "model", "rewritten", "slow", "holds", "proofs"]
    ids = [attributes["id"] for _, attributes in tree.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert set(names) <= set(ids)
    levels = [int(tag[1]) for tag, _ in tree.found if re.fullmatch("h[1-6]", tag)]
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_links_lead_somewhere(tree: Tree) -> None:
    ids = {attributes.get("id") for _, attributes in tree.found}
    inner = [link["href"] for link in tree.all("a") if link["href"].startswith("#")]
    assert len(inner) >= 6
    assert {link[1:] for link in inner} <= ids


def test_no_network(html: str, tree: Tree) -> None:
    assert not tree.all("link")
    assert not tree.all("img")
    assert not [attributes for _, attributes in tree.found if "src" in attributes]
    assert "@import" not in html
    assert "url(" not in html
    policy = next(one["content"] for one in tree.all("meta") if one.get("http-equiv"))
    script = re.search("<script>(.*?)</script>", html, re.DOTALL)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def test_what_is_told(tree: Tree, subject) -> None:
    plan = subject.plan
    for forward in plan.forwards:
        assert f"{forward.name}.{forward.method}" in tree.text
    for proof in plan.proofs:
        assert proof.claim in tree.text
    for word in ("heads", "gated", "norm", "attention"):
        assert WORDS[word] in tree.text
    assert "wq + wk + wv -> qkv_proj" in tree.text
    assert "modeling_plain.py:" in tree.text
    code = "".join(tree.texts)  # colours split it up
    assert "value = self.wv(stream)" in code
    assert "self.qkv_proj(stream).split(self.qkv_proj_sizes, dim=-1)" in code
    assert "decoder.blocks.[0-3].mixer: 4 heads, 2 key heads, so 1, 2, 4 can" in tree.text
    assert tree.text.count("stage 0, ranks 0–1") >= 1


def test_the_head_comes_last(tree: Tree) -> None:
    text = tree.text
    assert text.index("table 512 x 256") < text.index("4 layers decoder.blocks") < text.index("head 512 x 256")
    assert text.index("4 layers decoder.blocks") < text.index("after 256, eps")


def test_the_picture_adds_up(tree: Tree, subject) -> None:
    bars = [one for one in tree.all("svg") if one.get("role") == "img"]
    assert len(bars) == len(subject.held.held) == 2
    assert all("of query, key and value projections" in one["aria-label"] for one in bars)
    rows = tree.all("rect")
    wide = sum(float(one["width"]) for one in rows)
    heaviest = max(one.bytes for one in subject.held.held)
    assert wide == pytest.approx(100 * sum(one.bytes for one in subject.held.held) / heaviest, abs=0.1)


def test_nothing_hostile_gets_out(hostile) -> None:
    found = Tree(page(hostile))
    assert len(found.all("script")) == 1
    assert not found.all("img")
    assert not [name for _, attributes in found.found for name in attributes if name.startswith("on")]
    assert found.text.count("document.title='owned'") >= 5
    assert "{{ 7*7 }}" in found.text
    assert "49" not in re.findall(r"\b\d+\b", found.text.partition("In short")[0])
    picture = card(hostile)
    assert "<script" not in picture
    assert "<img" not in picture


def test_refusals_are_told_with_line_and_remedy(hostile) -> None:
    found = Tree(page(hostile))
    (refusal,) = hostile.plan.refusals
    assert f":{refusal.place.line}" in found.text
    assert "HFS205" in found.text
    assert "Remedy" in found.text
    assert any("blamed" in one.get("class", "") for one in found.all("span"))
    assert list(refused([refusal]))


def test_a_plan_of_nothing(subject) -> None:
    """No layers to cut, nothing rewritten, nothing proven: still a page and a picture."""
    plan = dataclasses.replace(subject.plan, stages=None, forwards=(), proofs=(), ties=())
    bare = dataclasses.replace(subject, plan=plan)
    assert "Nothing about this model has been proven yet" in Tree(page(bare)).text
    assert "<svg" in card(bare)


def test_the_picture_for_a_readme(subject) -> None:
    from xml.etree import ElementTree as ET

    root = ET.fromstring(card(subject))
    name = "{http://www.w3.org/2000/svg}"
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    for rect in root.iter(f"{name}rect"):
        x, y, wide, tall = (float(rect.attrib[one]) for one in ("x", "y", "width", "height"))
        assert 0 <= x <= x + wide <= width
        assert 0 <= y <= y + tall <= height
    words = [one.text for one in root.iter(f"{name}text")]
    assert "PlainForCausalLM" in words
    assert {"heads", "gated", "attention"} <= set(words)
    assert "3.02 M parameters" not in words
    assert "parameters 3.02 M" in root.attrib["aria-label"]


def test_sides() -> None:
    runs = sides("a\nb\nc\nd\ne\nf\ng\nh\ni\nx\nz", "a\nb\nc\nd\ne\nf\ng\nh\ni\ny1\ny2\nz", 40)
    assert [(run.folded, len(run.rows)) for run in runs] == [(True, 6), (False, 6)]
    rows = [row for run in runs for row in run.rows]
    assert [(row.number, row.new) for row in rows[-3:]] == [(49, 10), (None, 11), (50, 12)]
    assert [row.same for row in rows[-3:]] == [False, False, True]
    assert str(sides("<b>", "<b>")[0].rows[0].before).count("&lt;") == 1
