"""Which configuration an author's class is given in the engine: the one that transformers would give it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from transformers import PretrainedConfig, Qwen3Config

from hfspeed.vllm.subject import config_of

ANOTHER = type("Qwen3Config", (PretrainedConfig,), {"model_type": "qwen3", "width": 7})
"""As a repository has it that copied the class, and names only its model in `auto_map`."""


def given(config: Any, folder: Path) -> Any:
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    asked = SimpleNamespace(hf_config=config, hf_overrides={}, model=str(folder), revision=None)
    return config_of(asked, SimpleNamespace(config_class=ANOTHER))  # type: ignore[arg-type]


def test_a_class_that_only_has_the_same_name_does_not_read_it_again(tmp_path: Path) -> None:
    config = Qwen3Config()
    assert given(config, tmp_path) is config


def test_what_vllm_reads_in_its_own_way_is_read_again(tmp_path: Path) -> None:
    own = type("Qwen3Config", (PretrainedConfig,), {"model_type": "qwen3", "__module__": "vllm.configs.some"})
    found = given(own(), tmp_path)
    assert type(found) is ANOTHER
