"""What an author silences stays silent, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from hfspeed.lint.edits import edited
from hfspeed.lint.engine import check, parse, scan, told
from hfspeed.lint.ignores import directives
from hfspeed.lint.rules import rules
from hfspeed.lint.settings import choose

BAD = """\
class A(nn.Module):
    def forward(self, q, k, v, past_key_values=None):
        return torch.softmax(q @ k, -1) @ v{line}
"""


def fires(text: str) -> bool:
    return "HFS101" in [finding.code for finding in check(parse(text, Path("m.py")))]


@pytest.mark.parametrize(
    ("comment", "silent"),
    [
        ("", False),
        ("  # noqa", True),
        ("  # NOQA", True),
        ("  # noqa: HFS101", True),
        ("  # noqa:HFS101", True),
        ("  # noqa: E501, HFS101  because", True),
        ("  # noqa: E501 hfs101", True),
        ("  # noqa: E501", False),
        ("  # noqa: HFS102", False),
        ("  # hfspeed: ignore", True),
        ("  # hfspeed: ignore[HFS101] -- vision tower", True),
        ("  # hfspeed: ignore[HFS001, HFS101]", True),
        ("  # hfspeed: ignore[attention-by-hand]", True),
        ("  # hfspeed: ignore[HFS102]", False),
        ("  # hfspeed: ignore[]", False),
        ("  # type: ignore  # noqa: HFS101", True),
        ("  # noqaish", False),
        ("  # hfspeed: ignored", False),
        ("  # hfspeed: noqa", False),  # for the file, and only alone on its line
    ],
)
def test_on_a_line(comment: str, silent: bool) -> None:
    assert fires(BAD.format(line=comment)) is not silent


@pytest.mark.parametrize(
    ("comment", "silent"),
    [
        ("# hfspeed: noqa", True),
        ("# hfspeed: noqa: HFS101", True),
        ("# hfspeed: noqa: HFS102, attention-by-hand", True),
        ("# hfspeed: noqa -- all by hand", True),
        ("# hfspeed: noqa: HFS102", False),
        ("# noqa", False),
        ("text = '# hfspeed: noqa'", False),
    ],
)
def test_for_a_file(comment: str, silent: bool) -> None:
    assert fires(f"{comment}\n" + BAD.format(line="")) is not silent


def test_the_last_line_of_a_long_call_counts() -> None:
    text = BAD.format(line="").replace("torch.softmax(q @ k, -1)", "torch.softmax(\n            q @ k, -1\n        )")
    assert fires(text)
    assert not fires(text.replace(") @ v", ") @ v  # noqa: HFS101"))


def test_what_does_not_tokenize_is_read_as_far_as_it_goes() -> None:
    assert [(one.first, one.codes) for one in directives("x = 1  # noqa\n(((\n")] == [(1, ("*",))]


def test_over_a_range() -> None:
    text = "# hfspeed: disable[HFS101]\n" + BAD.format(line="") + "# hfspeed: enable[HFS101]\n"
    assert not fires(text)
    assert fires(text + BAD.format(line=""))
    assert not fires("# hfspeed: disable\n" + BAD.format(line=""))
    assert fires("# hfspeed: disable[HFS102]\n" + BAD.format(line=""))


@pytest.mark.parametrize(
    ("line", "code", "mended"),
    [
        ("x = 1  # noqa: HFS101", "HFS101", None),  # the planner may still say it
        ("x = 1  # noqa: HFS102", "HFS102", "x = 1"),
        ("x = 1  # noqa: E501, HFS102", "HFS102", "x = 1  # noqa: E501"),
        ("x = 1  # noqa: HFS999", "HFS999", "x = 1"),
        ("x = 1  # noqa: E501", None, None),
        ("x = 1  # noqa", None, None),
        ("x = 1  # hfspeed: ignore", None, None),  # which findings there are is only known when all was looked for
        ("x = 1  # hfspeed: ignore[HFS102] -- why", "HFS102", "x = 1"),
        ("x = 1  # hfspeed: ignore[HFS102]  # type: ignore", "HFS102", "x = 1  # type: ignore"),
        ("x = 1  # hfspeed: ignore[HFS102, HFS101]", "HFS102", "x = 1  # hfspeed: ignore[HFS101]"),
        ("# hfspeed: noqa: HFS102", "HFS102", ""),
        ("x = 1  # hfspeed: ignore[no-such-rule]", "no-such-rule", "x = 1"),
        ("x = 1  # hfspeed: ignore[HFS102, HFS902]", None, None),
    ],
)
def test_what_silences_nothing_is_told_and_taken_away(line: str, code: str | None, mended: str | None) -> None:
    text = f"a = 0\n{line}\nb = 2\n"
    found = check(parse(text, Path("m.py")))
    if code is None or mended is None:
        assert found == []
        return
    (finding,) = found
    assert finding.code == "HFS902"
    assert code in finding.message
    assert edited(text, finding.edits) == (f"a = 0\n{mended}\nb = 2\n" if mended else "a = 0\nb = 2\n")


def test_a_comment_is_judged_only_when_its_rule_was_looked_for() -> None:
    facts = parse("x = 1  # noqa: HFS102\n", Path("m.py"))
    assert check(facts, choose(["HFS902"])) == []
    assert len(check(facts, choose(["HFS902", "HFS102"]))) == 1
    everything = told(scan(facts), "m.py", rules(), planned=[])
    assert [finding.code for finding in everything] == ["HFS902"]
    bare = told(scan(parse("x = 1  # hfspeed: ignore\n", Path("m.py"))), "m.py", rules(), planned=[])
    assert [finding.code for finding in bare] == ["HFS902"]
