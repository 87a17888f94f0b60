"""``check`` as it is set up: settings, standard input, files of its own, comments that it writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BAD = "class A(nn.Module):\n    def forward(self, q, cache):\n        return torch.softmax(q @ q, -1) @ q\n"
ROOT = Path(__file__).parents[2]


def hfspeed(*arguments: str, cwd: Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hfspeed", "check", "--static", *arguments],
        capture_output=True, text=True, check=False, cwd=cwd, input=text, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bad.py").write_text(BAD)
    (tmp_path / "good.py").write_text("x = 1\n")
    return tmp_path


def test_settings_choose_rules_and_files(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.hfspeed]\noutput-format = "concise"\n')
    assert hfspeed(".", cwd=folder).stdout.count("\n") == 1
    assert hfspeed("--per-file-ignores", "bad.py:HFS1", ".", cwd=folder).returncode == 0
    assert hfspeed("--extend-exclude", "bad.py", ".", cwd=folder).returncode == 0
    assert hfspeed("--select", "HFS1", "--ignore", "HFS101", ".", cwd=folder).returncode == 0
    (folder / "pyproject.toml").write_text('[tool.hfspeed]\nignroe = ["HFS1"]\n')
    wrong = hfspeed(".", cwd=folder)
    assert wrong.returncode == 2
    assert "did you mean ignore?" in wrong.stderr
    assert hfspeed("--isolated", ".", cwd=folder).returncode == 1


def test_it_fails_from_a_severity_on(folder: Path) -> None:
    (folder / "warning.py").write_text("x = 1  # noqa: HFS102\n")
    assert hfspeed("warning.py", cwd=folder).returncode == 1
    assert hfspeed("--fail-on", "error", "warning.py", cwd=folder).returncode == 0
    assert hfspeed("--fail-on", "fatal", "warning.py", cwd=folder).returncode == 2


def test_standard_input_has_a_name(folder: Path) -> None:
    run = hfspeed("--stdin-filename", "m.py", "-", cwd=folder, text=BAD)
    assert run.returncode == 1
    assert run.stdout.startswith("m.py:3:16: HFS101 ")
    assert "3 |         return torch.softmax(q @ q, -1) @ q" in run.stdout
    assert hfspeed("-", cwd=folder, text="x = 1\n").returncode == 0
    assert hfspeed("-", "bad.py", cwd=folder, text="").returncode == 2
    mended = hfspeed("--fix", "-", cwd=folder, text="x = 1  # noqa: HFS102\r\n" + BAD)
    assert mended.stdout == "x = 1\n" + BAD
    assert "HFS101" in mended.stderr


def test_findings_go_to_a_file(folder: Path) -> None:
    run = hfspeed("-o", "out.json", "--output-format", "json", ".", cwd=folder)
    assert (run.returncode, run.stdout) == (1, "")
    assert json.loads((folder / "out.json").read_text())["findings"][0]["code"] == "HFS101"
    assert hfspeed("-o", "nowhere/out.json", ".", cwd=folder).returncode == 2


def test_findings_are_counted(folder: Path) -> None:
    (folder / "two.py").write_text(BAD + "x = 1  # noqa: HFS102\n")
    assert hfspeed("--statistics", ".", cwd=folder).stdout.splitlines() == [
        "2  HFS101  [ ]  attention-by-hand", "1  HFS902  [*]  unused-ignore",
    ]  # fmt: skip


def test_what_is_found_is_silenced_with_comments(folder: Path) -> None:
    (folder / "two.py").write_text(BAD.replace("-1) @ q\n", "-1) @ q  # noqa: E501\n"))
    assert hfspeed("--add-noqa", ".", cwd=folder).returncode == 0
    assert (folder / "bad.py").read_text() == BAD.rstrip() + "  # noqa: HFS101\n"
    assert "# noqa: E501, HFS101\n" in (folder / "two.py").read_text()
    assert hfspeed(".", cwd=folder).returncode == 0
    assert hfspeed("--ignore-noqa", ".", cwd=folder).returncode == 1


def test_in_a_string_there_is_no_place_for_a_comment(folder: Path) -> None:
    text = BAD.replace("-1) @ q", '-1).x("""\n""") @ q').replace("torch.softmax(q @ q", "torch.softmax(q @ \\\n  q")
    (folder / "bad.py").write_text(text)
    hfspeed("--add-noqa", "bad.py", cwd=folder)
    compile((folder / "bad.py").read_text(), "bad.py", "exec")


def test_fixes_are_shown_made_and_counted(folder: Path) -> None:
    text = "x = 1  # noqa: HFS102\r\ny = 'é'\r\n"
    (folder / "m.py").write_bytes(text.encode())
    shown = hfspeed("--diff", "m.py", cwd=folder)
    assert shown.returncode == 1
    assert shown.stdout.splitlines()[3] == "-x = 1  # noqa: HFS102"
    assert (folder / "m.py").read_bytes() == text.encode()
    assert hfspeed("--fix", "--unfixable", "HFS902", "m.py", cwd=folder).returncode == 1
    made = hfspeed("--fix", "--exit-non-zero-on-fix", "m.py", cwd=folder)
    assert (made.returncode, made.stdout) == (1, "")
    assert (folder / "m.py").read_bytes() == "x = 1\r\ny = 'é'\r\n".encode()
    assert hfspeed("--diff", ".", cwd=folder).returncode == 0


def test_the_hooks_are_ones_that_a_hook_runner_reads() -> None:
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()
    entries = [line.split(": ", 1)[1] for line in text.splitlines() if line.strip().startswith("entry: ")]
    assert len(entries) == 2
    for entry in entries:
        command = entry.split()
        run = subprocess.run(
            [sys.executable, "-m", *command, "examples/plain/modeling_plain.py"],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr


def test_single_settings_previews_and_targets(folder: Path) -> None:
    (folder / "modeling_old.py").write_text("from transformers import AdamW\n")
    old = ("--static", "--output-format", "concise", "modeling_old.py")
    assert hfspeed(*old, cwd=folder).returncode == 1
    for flags in (["--target", "transformers==4.57"], ["--config", "target=['transformers==4.57']"],
                  ["--config", 'ignore=["HFS7"]']):  # fmt: skip
        assert hfspeed(*flags, *old, cwd=folder).returncode == 0, flags
    wrong = hfspeed("--config", "ignroe=[]", *old, cwd=folder)
    assert (wrong.returncode, "did you mean ignore?" in wrong.stderr) == (2, True)
    assert hfspeed("--target", "torch==2", *old, cwd=folder).returncode == 2
    (folder / "modeling_new.py").write_text(
        "class MForCausalLM(PreTrainedModel):\n    def forward(self, x, attention_mask=None):\n"
        "        return self.head(x + self.table(attention_mask.cumsum(-1)))\n"
    )
    quiet = hfspeed("--static", "--select", "HFS109", "modeling_new.py", cwd=folder)
    assert (quiet.returncode, "only with --preview" in quiet.stderr) == (0, True)
    assert "HFS109" in hfspeed("--static", "--preview", "modeling_new.py", cwd=folder).stdout
