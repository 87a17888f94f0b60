"""What nobody means to name: every command says what is wrong and what to do, with 2, and without a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from hfspeed.cli.app import main

TINY: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
}
COMMANDS = ["plan", "verify", "emit", "report", "bench", "serve"]
Told = tuple[int, str, str]


def folder(at: Path, config: object = TINY, **files: bytes) -> Path:
    at.mkdir()
    if config is not None:
        text = config if isinstance(config, str) else json.dumps(config)
        (at / "config.json").write_text(text, "utf-8")
    for name, data in files.items():
        (at / name.replace("__", ".")).write_bytes(data)
    return at


def broken(at: Path) -> Path:
    return folder(at, '{"model_type": ')


def deep(at: Path) -> Path:
    return folder(at, "[" * 100_000)


def listed(at: Path) -> Path:
    return folder(at, [])


def empty(at: Path) -> Path:
    return folder(at, None)


def no_config(at: Path) -> Path:
    return folder(at, None, model__safetensors=b"")


def empty_weights(at: Path) -> Path:
    return folder(at, model__safetensors=b"")


def cut_weights(at: Path) -> Path:
    return folder(at, model__safetensors=(10_000).to_bytes(8, "little") + b"{}")


def broken_index(at: Path) -> Path:
    made = folder(at)
    (made / "model.safetensors.index.json").write_text("{", "utf-8")
    return made


def missing_shard(at: Path) -> Path:
    made = folder(at)
    index = {"weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors"}}
    (made / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    return made


def weights_file(at: Path) -> Path:
    return folder(at, model__safetensors=b"") / "model.safetensors"


def config_file(at: Path) -> Path:
    return folder(at) / "config.json"


def config_folder(at: Path) -> Path:
    (at / "config.json").mkdir(parents=True)
    return at


CASES: list[tuple[Callable[[Path], Path], str]] = [
    (broken, "not readable as JSON"),
    (deep, "not readable as JSON"),
    (listed, "expected an object with model_type, found list"),
    (empty, "has no config.json; name a checkpoint folder"),
    (no_config, "has weights, but no config.json"),
    (weights_file, "weights without a configuration; name a checkpoint folder"),
    (config_file, "is a file; name a checkpoint folder"),
    (config_folder, "has no config.json"),
]
WEIGHTS: list[tuple[Callable[[Path], Path], str]] = [
    (empty_weights, "0 bytes, too few for the header"),
    (cut_weights, "the file was cut off"),
    (broken_index, "no readable weight_map"),
    (missing_shard, "model-00001-of-00002.safetensors, which is not there; download it"),
]
"""``verify`` and ``emit`` do not care: they look at no weights."""


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that starts here would take the place of the tests."""

    def execv(path: str, command: list[str]) -> None:
        raise AssertionError(f"the server was started: {command}")

    monkeypatch.setattr("os.execv", execv)
    monkeypatch.setattr("hfspeed.cli.serve.find_spec", lambda name: object())
    monkeypatch.setattr("hfspeed.cli.bench.find_spec", lambda name: object())


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Told]:
    def once(*arguments: str | Path) -> Told:
        with pytest.raises(SystemExit) as left:
            main([str(one) for one in arguments])
        shown = capsys.readouterr()
        code = left.value.code or 0
        assert isinstance(code, int)
        assert "Traceback" not in shown.out + shown.err
        return code, shown.out, shown.err

    return once


@pytest.mark.parametrize(
    ("made", "told", "command"),
    [(*case, command) for case in CASES for command in COMMANDS]
    + [(*case, command) for case in WEIGHTS for command in ("plan", "report", "bench", "serve")],
)
def test_told_at_once(
    made: Callable[[Path], Path], told: str, command: str, tmp_path: Path, run: Callable[..., Told]
) -> None:
    code, out, err = run(command, made(tmp_path / "model"))
    assert (code, out) == (2, "")
    assert err.startswith("hfspeed: ")
    assert told in err


@pytest.mark.parametrize("command", ["plan", "verify", "emit", "report", "serve"])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"model_type": "lama"}, "which the installed transformers does not know; did you mean llama"),
        ({"model_type": None}, "model_type is None"),
        ({"num_hidden_layers": "four"}, "'num_hidden_layers' expected int"),
        ({"num_attention_heads": 5}, "mend config.json"),
        ({"auto_map": {"AutoModelForCausalLM": "modeling_x.X"}}, "pass --trust-remote-code"),
        ({"model_type": "vit", "architectures": ["ViTModel"]}, "is not a causal language model"),
    ],
)
def test_a_configuration_that_cannot_be(
    command: str, change: dict[str, Any], told: str, tmp_path: Path, run: Callable[..., Told]
) -> None:
    code, out, err = run(command, folder(tmp_path / "model", TINY | change))
    assert (code, out) == (2, "")
    assert told in err


@pytest.mark.parametrize("command", ["plan", "verify", "emit", "report"])
@pytest.mark.parametrize("layers", [0, -3])
def test_no_layers(command: str, layers: int, tmp_path: Path, run: Callable[..., Told]) -> None:
    code, out, err = run(command, folder(tmp_path / "model", TINY | {"num_hidden_layers": layers}))
    assert (code, out) == (2, "")
    assert "`model.layers` has no layers (no-decoder-layers)" in err
    assert "say in the configuration how many there are" in err


def test_one_layer(tmp_path: Path, run: Callable[..., Told]) -> None:
    code, out, _ = run("plan", folder(tmp_path / "model", TINY | {"num_hidden_layers": 1}))
    assert code == 0
    assert "--pp 1\n" in out


@pytest.mark.parametrize("command", ["plan", "verify", "emit", "report", "serve"])
@pytest.mark.parametrize("name", ["no_such_type", "org/no-such-name", "", " ", "../nowhere", "\x00", "a" * 300])
def test_nothing_of_that_name(command: str, name: str, run: Callable[..., Told]) -> None:
    code, out, err = run(command, name)
    assert (code, out) == (2, "")
    assert err.startswith("hfspeed: ")


def test_seven_ranks(tmp_path: Path, run: Callable[..., Told]) -> None:
    """Seven heads go over seven ranks; four do not, and the numbers that work are told."""
    seven = {"num_attention_heads": 7, "num_key_value_heads": 7, "hidden_size": 112, "intermediate_size": 112}
    code, out, _ = run("plan", folder(tmp_path / "seven", TINY | seven), "--tp", "7")
    assert code == 0
    assert "\n  0      0-6    0-1 " in out
    assert "--tp 1, 7 " in out
    code, out, err = run("plan", folder(tmp_path / "four"), "--tp", "7")
    assert (code, out) == (2, "")
    assert "cannot be split over 7 ranks (4 heads, 2 key heads); it can over 1, 2, 4" in err


def test_weights_of_another_model(tmp_path: Path, run: Callable[..., Told]) -> None:
    """Tensors that belong to nothing are told, not counted."""
    import torch
    from safetensors.torch import save_file

    made = folder(tmp_path / "model")
    save_file({"somebody.else": torch.zeros(3), "lm_head.weight": torch.zeros(128, 64)}, made / "model.safetensors")
    code, out, _ = run("plan", made)
    assert code == 0
    assert "1 tensors on disk belong to nothing in the model" in out


@pytest.mark.parametrize(("made", "told"), [(broken, "not readable as JSON"), (empty, ""), (weights_file, "")])
def test_check(made: Callable[[Path], Path], told: str, tmp_path: Path, run: Callable[..., Told]) -> None:
    code, out, err = run("check", made(tmp_path / "model"))
    assert code in {0, 1, 2}
    assert told in out + err
