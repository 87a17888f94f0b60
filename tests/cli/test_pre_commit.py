"""The hooks as pre-commit runs them: in an environment that it makes, without torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pre_commit")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]


def git(*arguments: str, cwd: Path) -> str:
    return subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True, check=True).stdout.strip()


def test_the_hooks_run_in_an_environment_of_their_own(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    git("init", "--quiet", ".", cwd=project)
    hooks = f"{{repo: {ROOT}, rev: {git('rev-parse', 'HEAD', cwd=ROOT)}, hooks: [{{id: ID}}]}}"
    (project / "modeling_old.py").write_text("from transformers import AdamW\n")
    (project / "configuration_old.py").write_text("x = 1  # noqa: HFS102\n")
    (project / "other.py").write_text("from transformers import AdamW\n")
    ran = {}
    for name in ("hfspeed-check", "hfspeed-fix"):
        (project / ".pre-commit-config.yaml").write_text(f"repos: [{hooks.replace('ID', name)}]\n")
        git("add", "--all", cwd=project)
        ran[name] = subprocess.run(
            [sys.executable, "-m", "pre_commit", "run", "--all-files", "--color", "never"],
            cwd=project, env={**os.environ, "PRE_COMMIT_HOME": str(home)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    check, fix = ran["hfspeed-check"].stdout, ran["hfspeed-fix"].stdout
    assert "modeling_old.py:1:1: HFS704" in check, check + ran["hfspeed-check"].stderr
    assert "configuration_old.py:1:8: HFS902" in check
    assert "other.py" not in check
    assert "HFS902" not in fix
    assert (project / "configuration_old.py").read_text() == "x = 1\n"
    installed = {path.name for path in home.glob("repo*/py_env*/lib/*/site-packages/*")}
    assert "libcst" in installed
    assert not installed & {"torch", "transformers", "vllm"}
