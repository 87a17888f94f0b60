"""``bench`` from outside: what it writes, its exit codes, and what it refuses before anything starts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hfspeed.cli.app import main

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
from fakes import Stage, failure


def outcome(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(["bench", *arguments])
    return left.value.code if isinstance(left.value.code, int) else 0


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "config.json").write_text('{"vocab_size": 99}')
    return folder


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Any:
    def setup(**trouble: Any) -> None:
        monkeypatch.setattr("hfspeed.bench.run.Worker", Stage(**trouble).spawn)
        monkeypatch.setattr("hfspeed.cli.bench.find_spec", lambda name: object())

    return setup


def test_it_measures_and_writes(model: Path, stage: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stage()
    files = [tmp_path / "out.json", tmp_path / "out.svg"]
    assert outcome(str(model), "--prompts", "3", "--enforce-eager", *(f"--output={f}" for f in files)) == 0
    out = capsys.readouterr().out
    assert "whole run" in out
    assert "hfspeed" in out
    data = json.loads(files[0].read_text())
    assert data["title"] == "small"
    assert data["job"]["prompts"] == 3
    assert data["job"]["engine"] == {"enforce_eager": True, "load_format": "dummy"}
    assert files[1].read_text().startswith("<svg")


def test_a_failed_arm_is_told_and_is_1(model: Path, stage: Any, capsys: pytest.CaptureFixture[str]) -> None:
    stage(peer=("start", 1, failure("no such kernel")))
    assert outcome(str(model)) == 1
    assert "peer failed after 0 rounds: no such kernel" in capsys.readouterr().out


def test_control_c_writes_what_there_is(model: Path, stage: Any, tmp_path: Path) -> None:
    stage(native=("measure", 4, KeyboardInterrupt()))
    file = tmp_path / "out.json"
    assert outcome(str(model), "--output", str(file)) == 130
    data = json.loads(file.read_text())
    assert data["interrupted"]
    assert len(data["arms"]["native"]["rounds"]) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name a model"),
        (["gpu-4b"], "needs 1 GPU, and torch sees 0 here"),
        (["gpu-235b-fp8-dp8-ep"], "needs 8 GPUs"),
        (["M", "--arms", "hfsped"], "did you mean hfspeed?"),
        (["M", "--output", "x.txt"], "ends in .json or .svg"),
        (["M", "--output", "nowhere/x.svg"], "make it first"),
        (["M", "--rounds", "4"], "--rounds"),
        (["nothing/there"], "no folder here"),
    ],
)
def test_what_it_refuses(
    arguments: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hfspeed.bench.presets.gpus", lambda: 0)
    monkeypatch.setattr("hfspeed.cli.bench.find_spec", lambda name: object())
    assert outcome(*arguments) == 2
    assert says in capsys.readouterr().err


def test_a_used_folder_is_not_cold(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(str(model), "--folder", str(model)) == 2
    assert "not an empty folder" in capsys.readouterr().err


def test_without_vllm_the_extra_is_named(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hfspeed.cli.bench.find_spec", lambda name: None)
    assert outcome(str(model)) == 2
    assert 'pip install "hfspeed[vllm]"' in capsys.readouterr().err


def test_presets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome("--presets") == 0
    assert "cpu-dense-tp2" in capsys.readouterr().out
