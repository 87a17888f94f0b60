"""``serve`` hands every flag to vLLM's server and becomes that process."""

from __future__ import annotations

import sys

import pytest

from hfspeed.cli.app import main
from hfspeed.cli.serve import SERVER, arguments


def test_the_way_through_transformers_is_chosen_unless_given() -> None:
    assert arguments("M", []) == ["--model", "M", "--model-impl", "transformers"]
    assert arguments("M", ["--model-impl", "vllm"]) == ["--model", "M", "--model-impl", "vllm"]
    assert arguments("M", ["--model_impl=auto"]) == ["--model", "M", "--model_impl=auto"]


def test_flags_pass_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[list[str]] = []

    def execv(path: str, command: list[str]) -> None:
        became.append(command)

    monkeypatch.setattr("hfspeed.cli.serve.find_spec", lambda name: object())
    monkeypatch.setattr("os.execv", execv)
    monkeypatch.setattr("hfspeed.cli.serve._unreachable", lambda name: False)
    with pytest.raises(SystemExit):
        main(["serve", "some/model", "-tp", "2", "--port=8001", "--help", "--load-format", "dummy", "x y"])
    assert became == [[
        sys.executable, "-m", SERVER, "--model", "some/model", "--model-impl", "transformers",
        "-tp", "2", "--port=8001", "--help", "--load-format", "dummy", "x y",
    ]]  # fmt: skip


def test_without_vllm_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("hfspeed.cli.serve.find_spec", lambda name: None)
    with pytest.raises(SystemExit) as left:
        main(["serve", "M"])
    assert left.value.code == 2
    assert 'pip install "hfspeed[vllm]"' in capsys.readouterr().err
