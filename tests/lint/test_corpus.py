"""Code that nobody here wrote: what ships with transformers, read from end to end."""

from __future__ import annotations

import re
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

SERVED = [
    "llama", "mistral", "ministral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "granite", "olmo", "olmo2",
    "olmo3", "smollm3", "stablelm", "starcoder2", "phi", "glm", "glm4", "exaone4", "helium", "seed_oss", "arcee",
    "cohere", "cohere2", "gpt_neox", "nemotron", "apertus", "persimmon", "hunyuan_v1_dense", "ernie4_5",
]  # fmt: skip
WITHOUT = {"falcon_mamba", "mamba", "mamba2", "rwkv", "xlstm"}
"""Causal language models without any attention."""
ELSEWHERE = {"fuyu", "gemma4_assistant", "gemma4_unified_assistant", "got_ocr2"}
"""Their attention is another model's, in another file."""


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


def by_hand(models: Path) -> set[str]:
    """The folders of causal language models whose file never names the interface."""
    auto = (models / "auto" / "modeling_auto.py").read_text("utf-8")
    listed = auto[auto.index("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = ") :]
    names = re.findall(r'\("[\w-]+", "(\w+)"\)', listed[: listed.index("\n)")])
    texts = {file.parent.name: file.read_text("utf-8") for file in models.glob("*/modeling_*.py")}
    own = {cls: folder for folder, text in texts.items() for cls in re.findall(r"^class (\w+)", text, re.MULTILINE)}
    return {own[name] for name in names if name in own and "ALL_ATTENTION_FUNCTIONS" not in texts[own[name]]}


def test_attention_by_hand_is_told_where_it_stands(models: Path, found: dict[str, list[Finding]]) -> None:
    families = by_hand(models)
    assert len(families) >= 26
    told_there = {name: [one for one in found.get(name, []) if one.code == "HFS101"] for name in families}
    assert {name for name, told in told_there.items() if not told} <= WITHOUT | ELSEWHERE
    for one in (one for listed in told_there.values() for one in listed):
        line = Path(one.place.file).read_text("utf-8").split("\n")[one.place.line - 1]
        words = r"softmax|logsumexp|probs = torch.exp|flash_attention|attention_fn|attend|attention\(|attn\("
        assert re.search(words, line, re.IGNORECASE), f"{one.place}: {line}"


def test_findings_are_few(found: dict[str, list[Finding]]) -> None:
    counts: dict[str, int] = {}
    for one in (one for listed in found.values() for one in listed):
        counts[one.code] = counts.get(one.code, 0) + 1
    assert {code for code, count in counts.items() if count > 20} <= {"HFS101", "HFS601"}
    assert set(counts) <= {"HFS101", "HFS102", "HFS103", "HFS204", "HFS301", "HFS407", "HFS601", "HFS603"}
