"""Code that nobody here wrote: what ships with transformers, read from end to end in bounded time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from hfspeed.lint.cache import Cache
from hfspeed.lint.disk import Disk
from hfspeed.lint.engine import told
from hfspeed.lint.finding import Finding, Severity
from hfspeed.lint.scans import scans
from hfspeed.lint.settings import Settings

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]

SERVED = [
    "llama", "mistral", "ministral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "granite", "olmo", "olmo2",
    "olmo3", "smollm3", "stablelm", "starcoder2", "phi", "glm", "glm4", "exaone4", "helium", "seed_oss", "arcee",
    "cohere", "cohere2", "gpt_neox", "nemotron", "apertus", "persimmon", "hunyuan_v1_dense", "ernie4_5",
]  # fmt: skip
BY_HAND = [
    "big_bird", "bloom", "codegen", "cpmant", "falcon", "flaubert", "gpt_neo", "gpt_neox_japanese", "gptj",
    "megatron_bert", "mpt", "mvp", "openai", "prophetnet", "rembert", "roformer", "trocr", "xglm", "xlm", "xlnet",
]  # fmt: skip


@pytest.fixture(scope="module")
def models() -> Path:
    spec = find_spec("transformers")
    if spec is None or spec.origin is None:
        pytest.skip("transformers is not installed")
    return Path(spec.origin).parent / "models"


@pytest.fixture(scope="module")
def found(models: Path) -> dict[str, list[Finding]]:
    files = sorted(models.glob("*/modeling_*.py"))
    by_family: dict[str, list[Finding]] = {}
    for file, scan in scans(files, Disk(), Cache(None)).items():
        by_family.setdefault(file.parent.name, []).extend(told(scan, str(file), Settings().rules_for(file)))
    return by_family


def test_what_is_served_exactly_has_no_error(found: dict[str, list[Finding]]) -> None:
    errors = [one for family in SERVED for one in found[family] if one.severity is Severity.ERROR]
    assert not [f"{one.place} {one.code} {one.message}" for one in errors]


@pytest.mark.parametrize("family", BY_HAND)
def test_attention_by_hand_is_told_where_it_stands(family: str, found: dict[str, list[Finding]]) -> None:
    told_there = [one for one in found[family] if one.code == "HFS101"]
    assert told_there
    for one in told_there:
        line = Path(one.place.file).read_text("utf-8").split("\n")[one.place.line - 1]
        assert re.search(r"softmax|flash_attention|attention_fn|attend|attention\(|attn\(", line, re.IGNORECASE), line


def test_findings_are_few(found: dict[str, list[Finding]]) -> None:
    counts: dict[str, int] = {}
    for one in (one for listed in found.values() for one in listed):
        counts[one.code] = counts.get(one.code, 0) + 1
    assert {code for code, count in counts.items() if count > 20} <= {"HFS101", "HFS601"}
    assert set(counts) <= {"HFS101", "HFS102", "HFS103", "HFS204", "HFS301", "HFS407", "HFS601", "HFS603"}


def test_it_is_fast(models: Path, tmp_path: Path) -> None:
    """In seconds of processor time, twenty cold and two warm, since a machine may have other things to do."""
    files = [str(file) for file in sorted(models.glob("*/modeling_*.py"))]
    cold, warm = _seconds(*files, cwd=tmp_path), _seconds(*files, cwd=tmp_path)
    assert cold < 40  # on two cores
    assert warm < 4
    one = tmp_path / "modeling_one.py"
    lines = (models / "llama" / "modeling_llama.py").read_text("utf-8").split("\n")
    one.write_text("\n".join([*lines, *["# filled up"] * (1000 - len(lines))]))
    assert min(_seconds("--no-cache", str(one), cwd=tmp_path) for _ in range(3)) < 1


def _seconds(*arguments: str, cwd: Path) -> float:
    before = os.times()
    run = subprocess.run(
        [sys.executable, "-m", "hfspeed", "check", "--static", "--statistics", *arguments],
        cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    after = os.times()
    assert run.returncode in (0, 1), run.stderr
    return after.children_user + after.children_system - before.children_user - before.children_system
