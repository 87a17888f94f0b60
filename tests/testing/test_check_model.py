"""An author's own guarantee: kept, it gives the plan; lost, it says which line lost it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from hfspeed.errors import UsageError
from hfspeed.testing import Lost, check_model

PLAIN = Path(__file__).resolve().parents[2] / "examples" / "plain"
MODELING = "modeling_plain.py"
EVERYTHING = ["heads", "gated", "norm", "attention"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(PLAIN, tmp_path / "model", ignore=shutil.ignore_patterns("__pycache__"))


def edited(folder: Path, old: str, new: str) -> int:
    """The folder's modeling file with one change; the line of it."""
    file = folder / MODELING
    text = file.read_text("utf-8")
    assert text.count(old) == 1, old
    file.write_text(text.replace(old, new), "utf-8")
    return text[: text.index(old)].count("\n") + 1


def test_kept(folder: Path) -> None:
    plan = check_model(folder, fused=EVERYTHING, tp=[1, 2], pp=2, trust_remote_code=True)
    assert plan.proofs
    assert plan.tensor
    layers = plan.stages.count
    check_model(folder, fused={"heads": layers, "gated": layers}, trust_remote_code=True)
    with pytest.raises(Lost, match=rf"has {layers} `heads`, expected {layers + 1} or more; there are"):
        check_model(folder, fused={"heads": layers + 1}, trust_remote_code=True)


def test_the_line_that_lost_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = edited(folder, "passed = self.w3(stream)", "passed = self.w3(stream + 1)")
    monkeypatch.chdir(folder.parent)
    with pytest.raises(Lost) as lost:
        check_model(folder, fused="gated", trust_remote_code=True)
    assert f"model/{MODELING}:{line}:" in str(lost.value)
    assert "has 0 `gated`" in str(lost.value)
    assert "(hfspeed rule HFS205)" in str(lost.value)
    assert {Path(one.place.file).name for one in lost.value.refusals if one.place} == {MODELING}
    check_model(folder, fused="heads", trust_remote_code=True)


def test_a_model_that_is_refused(folder: Path) -> None:
    line = edited(
        folder, "run = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, slow_attention)",
        "run = slow_attention; mask = None",
    )  # fmt: skip
    edited(folder, "scores.softmax(-1, dtype=torch.float32)", "scores.sigmoid()")
    with pytest.raises(Lost, match="cannot be served correctly") as lost:
        check_model(folder, trust_remote_code=True)
    assert lost.value.refusals
    assert line


def test_layouts(folder: Path) -> None:
    with pytest.raises(Lost) as lost:
        check_model(folder, tp=[2, 7], pp=[99], ep=[2], trust_remote_code=True)
    told = str(lost.value)
    assert "cannot be split over 7 ranks, only over 1, 2, 4: decoder.blocks.[0-3].mixer: 4 heads" in told
    assert "cannot be cut into 99 stages: decoder.blocks has" in told
    assert "has no experts that could be spread over 2 ranks" in told
    assert "1 experts" not in told


def test_the_hint_about_code_is_one_for_python(folder: Path) -> None:
    with pytest.raises(UsageError, match="read it, then pass trust_remote_code=True"):
        check_model(folder)


def test_more_ranks_than_planning_proves(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hfspeed.planner import prove

    seen = []
    real = prove.prove

    def counted(*arguments: object, **more: object) -> object:
        seen.append((more["ranks"], more["stages"]))
        return real(*arguments, **more)

    check_model(folder, tp=4, trust_remote_code=True)
    monkeypatch.setattr(prove, "prove", counted)
    check_model(folder, tp=4, trust_remote_code=True)
    assert seen == [((4,), (1,))]


def test_a_configuration() -> None:
    from transformers import LlamaConfig

    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 128}
    config = LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)
    plan = check_model(config, fused=("heads", "gated", "norm", "rotary"), tp=(1, 2))
    assert plan.architecture == "LlamaForCausalLM"


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: check_model("llama", fused=["head2"]), "expected kinds of ops, of attention"),
        (lambda: check_model("llama", fused=["gate"]), "did you mean 'gated'?"),
        (lambda: check_model("llama", tp=0), "count from 1"),
        (lambda: check_model(17), "expected a folder"),
        (lambda: check_model("no_such_folder_or_type"), "no_such_folder_or_type"),
    ],
)
def test_wrong_questions(call: Callable[[], object], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        call()


def test_nothing_heavy_is_imported() -> None:
    """Every pytest run in an environment with hfspeed loads the plugin."""
    import subprocess
    import sys

    heavy = ("torch", "transformers", "libcst")
    code = f"import sys, hfspeed.testing.plugin; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
