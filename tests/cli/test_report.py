"""``report`` writes a page or a picture, or says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")

from hfspeed.cli.app import main

PLAIN = str(Path(__file__).resolve().parents[2] / "examples" / "plain")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(["report", *arguments])
    shown = capsys.readouterr()
    return int(left.value.code or 0), shown.out, shown.err


def test_a_page_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, picture = tmp_path / "report.html", tmp_path / "report.svg"
    code, out, _ = run(capsys, PLAIN, "--trust-remote-code", "-o", str(page), "--tp", "2")
    assert (code, out) == (0, f"{page}\n")
    assert page.read_text("utf-8").startswith("<!doctype html>")
    assert "ranks 0–1" in page.read_text("utf-8")
    code, out, _ = run(capsys, PLAIN, "--trust-remote-code", "-o", str(picture))
    assert (code, out) == (0, f"{picture}\n")
    assert picture.read_text("utf-8").startswith("<svg")
    code, out, _ = run(capsys, PLAIN, "--trust-remote-code", "--format", "svg")
    assert out == picture.read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((PLAIN, "--trust-remote-code", "--tp", "7"), "cannot be split over 7 ranks"),
        ((PLAIN, "-o", "/nowhere/at/all.html"), "the folder /nowhere/at is not there; make it first"),
        ((PLAIN, "--trust-remote-code", "--dtype", "int3"), "--dtype takes auto, float64"),
        ((PLAIN,), "pass --trust-remote-code"),
        (("nothing/here",), "is no folder with config.json"),
    ],
)
def test_what_cannot_be_shown(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert told in err
