"""``report`` writes a page or a picture, or says why not."""

from __future__ import annotations

import shutil
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
    assert out.endswith("</svg>\n")


def test_a_model_that_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page is written, and the answer is no all the same."""
    folder = shutil.copytree(PLAIN, tmp_path / "model", ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "modeling_plain.py"
    text = file.read_text("utf-8")
    file.write_text(text.replace("    is_causal = True\n", "    is_causal = False\n"), "utf-8")
    page = tmp_path / "report.html"
    code, out, err = run(capsys, str(folder), "--trust-remote-code", "-o", str(page))
    assert (code, out) == (2, f"{page}\n")
    assert "so it does not start" in err
    told = page.read_text("utf-8")
    assert "Why it is not served, and how to change that" in told
    assert "the model cannot be served" in told
    assert "Remedy" in told


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
