"""Weights that do not fill the model: missing, extra, misshapen, cut off; the error names file, reason and way out."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from hfspeed.errors import CheckpointError
from hfspeed.planner.build import build
from hfspeed.planner.checkpoint import check
from hfspeed.planner.safetensors import stored


def _raises(*parts: str) -> Any:
    """The error says all of ``parts``, in this order."""
    return pytest.raises(CheckpointError, match="(?s)" + ".*".join(map(re.escape, parts)))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    config = LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, vocab_size=64
    )
    build(LlamaForCausalLM, config, device="cpu").save_pretrained(folder)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    return tmp_path


def _check(folder: Path) -> None:
    check(folder, LlamaForCausalLM, LlamaConfig.from_pretrained(folder))


def _change(folder: Path, **tensors: torch.Tensor | None) -> None:
    file = folder / "model.safetensors"
    found = {**load_file(file), **{name.replace("__", "."): value for name, value in tensors.items()}}
    save_file({name: value for name, value in found.items() if value is not None}, file)


def test_weights_that_are_missing(folder: Path) -> None:
    _change(folder, model__norm__weight=None, lm_head__weight=None)
    with _raises(str(folder), "2 missing", "model.norm.weight", "lm_head.weight", "config.json"):
        _check(folder)


def test_weights_that_nobody_asked_for(folder: Path) -> None:
    _change(folder, model__norm__bias=torch.zeros(32))
    with _raises("1 extra", "model.norm.bias"):
        _check(folder)


def test_weights_of_another_size(folder: Path) -> None:
    _change(folder, model__norm__weight=torch.zeros(33))
    with _raises("model.norm.weight", "[33]", "[32]"):
        _check(folder)


def test_a_tensor_told_twice(folder: Path) -> None:
    _change(folder, norm__weight=torch.zeros(32))
    with _raises("fills model.norm.weight a second time"):
        _check(folder)


@pytest.mark.parametrize("kept", [0, 5, 8, 100, -1])
def test_weights_that_were_cut_off(kept: int, folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with _raises(str(file), "bytes", "download it again"):
        _check(folder)


def test_weights_that_are_no_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    for text in (
        b"<html>not found</html>",
        (2).to_bytes(8, "little") + b"[]",
        (9).to_bytes(8, "little") + b'{"a": {}}',
    ):
        file.write_bytes(text)
        with _raises(str(file), "download"):
            _check(folder)


def test_a_pointer_in_place_of_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with _raises(str(file), "download it again"):
        _check(folder)


def test_no_weights_or_of_another_kind(tmp_path: Path) -> None:
    with _raises(str(tmp_path), "no safetensors", "download"):
        stored(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with _raises("pytorch_model.bin", "save_pretrained"):
        stored(tmp_path)


def test_an_index_that_is_broken_or_lies(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    for text in ("{", "[]", "{}", '{"weight_map": 3}'):
        index.write_text(text)
        with _raises(str(index), "weight_map"):
            stored(folder)
    index.write_text(json.dumps({"weight_map": {"gone.weight": "model.safetensors"}}))
    with _raises(str(index), "gone.weight", "model.safetensors"):
        stored(folder)


def test_one_name_in_two_files(folder: Path) -> None:
    shutil.copy(folder / "model.safetensors", folder / "model-copy.safetensors")
    with _raises("model.safetensors", "model-copy.safetensors"):
        stored(folder)
