"""What a user can get wrong, and that the error names the file, the reason and the way out."""

from __future__ import annotations

import json
import multiprocessing
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hfspeed.errors import CacheError, HfspeedError, SubjectError, UsageError
from hfspeed.plan import Plan, Wrapper
from hfspeed.planner.build import build
from hfspeed.planner.cache import PlanCache
from hfspeed.planner.load import load

ODD = Path(__file__).with_name("odd_models.py").read_text()
PLAN = Plan("A", "a", 8, (), (), (), (), Wrapper("model", ("input_ids",), "lm_head"), stages=None, tensor=True)


def _raises(kind: type[HfspeedError], *parts: str) -> Any:
    """The error says all of ``parts``, in this order."""
    return pytest.raises(kind, match="(?s)" + ".*".join(map(re.escape, parts)))


# -- names


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("qwen33", ["'qwen33'", "did you mean", "qwen3"]),
        ("lama", ["did you mean", "llama"]),
        ("someone/some-model-7b", ["hf download someone/some-model-7b"]),
        ("???", ["no folder", "no model type"]),
        ("/nowhere/modeling.py", ["/nowhere/modeling.py does not exist"]),
    ],
)
def test_a_name_that_means_nothing(name: str, parts: list[str]) -> None:
    with _raises(UsageError, *parts):
        load(name)


def test_a_folder_without_config(tmp_path: Path) -> None:
    with _raises(UsageError, str(tmp_path), "no config.json"):
        load(str(tmp_path))


def test_a_type_that_is_no_causal_language_model() -> None:
    with _raises(SubjectError, "vit", "not a causal language model"):
        load("vit")


# -- modeling files


def _file(folder: Path, text: str) -> str:
    file = folder / "modeling_odd.py"
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda text: text + "\ndef broken(:\n", ["modeling_odd.py:{last}", "does not parse", "SyntaxError"]),
        (lambda text: text + "\nimport no_such_module\n", ["modeling_odd.py:{last}", "no_such_module", "install"]),
        (lambda text: text + "\nfrom .beside import x\n", ["modeling_odd.py:{last}", "cannot be imported", "beside"]),
        (lambda text: text + "\nraise ValueError('my own')\n", ["modeling_odd.py:{last}", "ValueError: my own"]),
        (lambda text: text + "\n1 / 0\n", ["modeling_odd.py:{last}", "ZeroDivisionError"]),
        (lambda _: "x = 1\n", ["modeling_odd.py", "no causal language model", "none"]),
        (
            lambda text: text.replace("OddForCausalLM", "OddHead").replace(", GenerationMixin", ""),
            ["OddModel", "OddHead"],
        ),
        (lambda _: "\0", ["modeling_odd.py:1", "does not parse"]),
    ],
)
def test_a_file_that_cannot_be_planned(change: Callable[[str], str], parts: list[str], tmp_path: Path) -> None:
    text = change(ODD)
    last = str(len(text.rstrip("\n").split("\n")))
    with _raises(SubjectError, *(part.format(last=last) for part in parts)):
        load(_file(tmp_path, text))


def test_two_models_in_one_file_are_both_named(tmp_path: Path) -> None:
    text = ODD + "\n\nclass SecondForCausalLM(OddForCausalLM):\n    pass\n"
    with _raises(SubjectError, "several", "OddForCausalLM, SecondForCausalLM", "config.json"):
        load(_file(tmp_path, text))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "odd", "architectures": ["SecondForCausalLM"]}))
    assert load(_file(tmp_path, text)).model_class.__name__ == "SecondForCausalLM"


def test_a_configuration_class_without_defaults(tmp_path: Path) -> None:
    text = ODD.replace("width: int = 1536,", "width: int,")
    with _raises(SubjectError, "OddConfig has no default configuration", "width", "config.json"):
        load(_file(tmp_path, text))


def test_a_name_with_a_dot(tmp_path: Path) -> None:
    (tmp_path / "modeling.v2.py").write_text(ODD)
    with _raises(UsageError, "modeling.v2.py", "rename it to modeling_v2.py"):
        load(str(tmp_path / "modeling.v2.py"))


def test_a_constructor_that_raises_is_told_at_its_line(tmp_path: Path) -> None:
    text = ODD.replace("self.piece = config.width", "self.piece = config.no_such_size")
    line = 1 + text[: text.index("config.no_such_size")].count("\n")
    subject = load(_file(tmp_path, text))
    with _raises(SubjectError, f"modeling_odd.py:{line}", "OddForCausalLM cannot be built", "no_such_size"):
        build(subject.model_class, subject.config)


# -- config.json


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("{", ["config.json", "not readable as JSON"]),
        ("[]", ["config.json", "expected an object", "list"]),
        ("{}", ["config.json", "model_type is None", "auto_map"]),
        ('{"model_type": "qwen33"}', ["config.json", "'qwen33'", "did you mean", "qwen3"]),
        ('{"model_type": "llama", "auto_map": 3}', ["config.json", "auto_map", "3"]),
        ('{"model_type": "llama", "hidden_size": "wide"}', ["config.json", "hidden_size"]),
        ('{"model_type": "llama", "num_hidden_layers": [1]}', ["config.json", "num_hidden_layers"]),
        ('{"model_type": "vit", "architectures": ["ViTModel"]}', ["ViTModel", "not a causal language model"]),
        (
            '{"model_type": "llama", "architectures": ["Qwen3ForCausalLM"]}',
            ["Qwen3ForCausalLM", "Qwen3Config", "LlamaConfig"],
        ),
    ],
)
def test_a_config_that_is_wrong(text: str, parts: list[str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with _raises(SubjectError, *parts):
        load(str(tmp_path))


def test_a_config_of_another_model_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with _raises(SubjectError, "config.json", "'llama'", "OddForCausalLM", "'odd'"):
        load(_file(tmp_path, ODD))


@pytest.mark.parametrize(
    ("named", "parts"),
    [
        ("modeling_gone.OddForCausalLM", ["modeling_gone.py does not exist"]),
        ("modeling_odd.NoSuchClass", ["NoSuchClass"]),
        ("modeling_odd.OddConfig", ["OddConfig is not a PreTrainedModel"]),
    ],
)
def test_an_auto_map_that_names_nothing(named: str, parts: list[str], tmp_path: Path) -> None:
    _file(tmp_path, ODD)
    auto = {"AutoConfig": "modeling_odd.OddConfig", "AutoModelForCausalLM": named}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "odd", "auto_map": auto}))
    with _raises(SubjectError, *parts):
        load(str(tmp_path), trust_remote_code=True)


# -- the plan cache


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = PlanCache(tmp_path / "file")
    with _raises(CacheError, str(tmp_path / "file"), "cannot be written", "HFSPEED_CACHE_DIR"):
        cache.put("key", PLAN)
    with _raises(CacheError, "cannot be read", "HFSPEED_CACHE_DIR"):
        cache.get("key")


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data.replace(b'"A"', b'"B"'),
        lambda data: b"\xff" + data,
        lambda data: data + b" ",
    ],
)
def test_a_damaged_entry_is_absent_and_written_anew(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    cache = PlanCache(tmp_path)
    path = cache.put("key", PLAN)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.get("key") is None
    cache.put("key", PLAN)
    assert cache.get("key") == PLAN


def _write_often(root: Path, size: int) -> None:
    cache = PlanCache(root)
    for _ in range(200):
        cache.put("key", replace(PLAN, size=size, ignorable=("x" * size,) * 50))


def test_two_processes_writing_at_once(tmp_path: Path) -> None:
    cache = PlanCache(tmp_path)
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_often, args=(tmp_path, size)) for size in (8, 800)]
    cache.put("key", PLAN)
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        found = cache.get("key")
        assert found is not None, "a reader never meets half an entry"
        seen.add(found.size)
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert len(seen) > 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["key.json"]
