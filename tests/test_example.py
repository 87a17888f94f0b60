"""An example knows its text and its marks."""

from __future__ import annotations

from hfspeed.example import Example


def test_marks_count_in_the_dedented_text() -> None:
    example = Example("""
        q = self.q(x)
        x.mul_(2)  # HFS103
        k = self.k(x)  # HFS104, HFS201
        v = self.v(x)  # as in HFS103 above
    """)
    assert example.text.startswith("q = self.q(x)\nx.mul_(2)")
    assert example.marks() == ((2, "HFS103"), (3, "HFS104"), (3, "HFS201"))
    assert example.shown == "q = self.q(x)\nx.mul_(2)\nk = self.k(x)\nv = self.v(x)  # as in HFS103 above\n"


def test_an_example_is_hashable() -> None:
    assert len({Example("x", widths={"up": 24}), Example("x", widths={"up": 24})}) == 1
