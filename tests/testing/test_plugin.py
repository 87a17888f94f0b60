"""The plugin, in a pytest of its own: a marked test fails with the author's line, or gets the plan."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")

ROOT = Path(__file__).resolve().parents[2]
PLAIN = ROOT / "examples" / "plain"
TESTS = """
import pytest

ASKED = {"fused": ["heads", "gated"], "tp": [1, 2], "trust_remote_code": True}


@pytest.mark.hfspeed_model("model", **ASKED)
def test_plan(hfspeed_plan):
    assert hfspeed_plan.architecture == "PlainForCausalLM"


@pytest.mark.hfspeed_model("model", **ASKED)
def test_without_the_fixture():
    pass


@pytest.mark.hfspeed_model("model", tp=[7], trust_remote_code=True)
def test_seven():
    pass


@pytest.mark.hfspeed_model("nowhere/at/all")
def test_nowhere():
    pass


def test_unmarked(hfspeed_plan):
    pass
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    plugins = ["-p", "no:hfspeed", "-p", "hfspeed.testing.plugin", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *plugins, "--strict-markers", "-rA", *arguments]
    environ = os.environ | {"PYTHONPATH": str(ROOT), "HFSPEED_CACHE_DIR": str(folder / "cache")}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_plugin(tmp_path: Path) -> None:
    model = shutil.copytree(PLAIN, tmp_path / "model", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "test_model.py").write_text(TESTS, "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", "utf-8")
    done = run(tmp_path)
    lines = done.stdout.splitlines()
    for name in ("test_plan", "test_without_the_fixture"):
        assert f"PASSED test_model.py::{name}" in lines, done.stdout
    told = done.stdout
    assert "cannot be split over 7 ranks, only over 1, 2, 4: decoder.blocks." in told
    assert "'nowhere/at/all' is no folder with config.json" in told
    assert "hfspeed_plan needs a model: @pytest.mark.hfspeed_model" in told
    assert "planner/serve.py" not in told  # how it was found out is nobody's business
    file = model / "modeling_plain.py"
    text = file.read_text("utf-8")
    file.write_text(text.replace("passed = self.w3(stream)", "passed = self.w3(stream + 1)"), "utf-8")
    broken = run(tmp_path, "-k", "test_plan")
    assert broken.returncode == 1
    assert "has 0 `gated`" in broken.stdout
    assert "model/modeling_plain.py:" in broken.stdout
