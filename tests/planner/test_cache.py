"""Plans on disk: found again when nothing changed, and never found when something did."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

from hfspeed.plan import Embed, Head, Norm, Plan, Weight, Wrapper
from hfspeed.planner.cache import PlanCache, code_of, key_for
from hfspeed.planner.load import Subject, load

ODD = Path(__file__).with_name("odd_models.py")
PLAN = Plan(
    architecture="OddForCausalLM",
    module="odd",
    size=64,
    ops=(Embed("model.embed", 144, 64), Norm("model.norm", 64, 1e-6, "one_plus"), Head("lm_head", 144, 64, bias=False)),
    weights=(Weight("lm_head.weight", "lm_head.weight"),),
    ties=(),
    forwards=(),
    wrapper=Wrapper("model", ("input_ids",), "lm_head"),
    stages=None,
    tensor=True,
)


@pytest.fixture
def cache(tmp_path: Path) -> PlanCache:
    return PlanCache(tmp_path / "made" / "when" / "needed")


def test_put_and_get(cache: PlanCache) -> None:
    assert cache.get("key") is None
    path = cache.put("key", PLAN)
    assert cache.get("key") == PLAN
    assert cache.get("other") is None
    assert [entry.name for entry in path.parent.iterdir()] == ["key.json"], "nothing half-written stays"


def test_the_last_one_wins(cache: PlanCache) -> None:
    cache.put("key", PLAN)
    cache.put("key", replace(PLAN, size=128))
    found = cache.get("key")
    assert found is not None
    assert found.size == 128


def _llama(**values: object) -> Subject:
    subject = load("llama")
    return replace(subject, config=LlamaConfig(num_hidden_layers=2, **values))


def test_the_key_hangs_on_the_configuration() -> None:
    assert key_for(_llama()) == key_for(_llama())
    assert key_for(_llama()) != key_for(_llama(hidden_size=2048))
    assert key_for(_llama()) != key_for(_llama(rms_norm_eps=1e-5))


def test_the_key_does_not_hang_on_where_the_weights_lie(tmp_path: Path) -> None:
    here, there = _llama(), _llama()
    there.config._name_or_path = str(tmp_path)
    assert key_for(here) == key_for(there)


def test_the_key_hangs_on_the_author_s_code_and_what_lies_beside(tmp_path: Path) -> None:
    file = tmp_path / "modeling_odd.py"
    file.write_text(ODD.read_text())
    first = key_for(load(str(file)))
    assert key_for(load(str(file))) == first
    file.write_text(ODD.read_text() + "\n# a comment\n")
    second = key_for(load(str(file)))
    (tmp_path / "beside.py").write_text("VALUE = 1\n")
    assert len({first, second, key_for(load(str(file)))}) == 3


def test_the_key_hangs_on_what_the_author_s_code_may_read(tmp_path: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    from mutants import mutant

    subject = mutant(tmp_path)
    before = key_for(subject)
    (tmp_path / "model.safetensors").write_bytes(b"0")
    assert key_for(subject) == before
    (tmp_path / "gains.json").write_text("[1.0]", encoding="utf-8")
    first = key_for(subject)
    (tmp_path / "gains.json").write_text("[3.0]", encoding="utf-8")
    assert len({before, first, key_for(subject)}) == 3


def test_the_key_hangs_on_what_is_imported_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "model"
    for one in (elsewhere / "numbers_of_mine", folder):
        one.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(elsewhere))
    (elsewhere / "numbers_of_mine" / "__init__.py").write_text(
        "import importlib\nONE = importlib.import_module('ones')\n"
    )
    (elsewhere / "numbers_of_mine" / "sizes.py").write_text("EPS = 1e-6\n")
    (elsewhere / "ones.py").write_text("VALUE = 1\n")
    file = folder / "modeling_odd.py"
    late = "\n\ndef late():\n    from numbers_of_mine.sizes import EPS\n    return EPS\n\n\nlate()\n"
    file.write_text(ODD.read_text() + late)
    subject = load(str(file))
    files, installed = code_of(subject)
    assert {"__init__.py", "sizes.py", "ones.py"} <= {one.name for one in files if elsewhere in one.parents}
    assert installed["transformers"] == transformers.__version__
    keys = [key_for(subject)]
    for name in ("numbers_of_mine/__init__.py", "numbers_of_mine/sizes.py", "ones.py"):
        (elsewhere / name).write_text((elsewhere / name).read_text() + "MORE = 1\n")
        keys.append(key_for(subject))
    assert len(set(keys)) == 4


def test_the_key_hangs_on_every_class_in_the_model() -> None:
    names = {file.name for file in code_of(_llama())[0]}
    assert {"modeling_llama.py", "modeling_utils.py"} <= names


def test_the_key_hangs_on_the_class() -> None:
    class Other(LlamaForCausalLM):
        """The same forward, another class."""

    subject = _llama()
    assert key_for(subject) != key_for(replace(subject, model_class=Other))
