"""What an author silences stays silent, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from hfspeed.lint.engine import check, parse
from hfspeed.lint.ignores import ignores

BAD = """\
class A(nn.Module):
    def forward(self, q, k, v, past_key_values=None):
        return torch.softmax(q @ k, -1) @ v{line}
"""


def fires(text: str) -> bool:
    return [finding.code for finding in check(parse(text, Path("m.py")))] == ["HFS101"]


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
    assert ignores("x = 1  # noqa\n(((\n").lines == {1: frozenset({"*"})}
