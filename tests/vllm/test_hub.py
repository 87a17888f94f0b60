"""Folders as the Hub has them, served from their own code with ``trust_remote_code``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest

OURS = "hfspeed.vllm.models.causal.TransformersForCausalLM"
HYBRID = "hfspeed.vllm.models.recurrent.TransformersHybridForCausalLM"
HUB = Path(__file__).resolve().parents[1] / "hub"
# a head of its own making and linear biases; a head below the base model; positions counted and a tied head; a window
# a scan that runs on whole sequences; angles that stand once; a stream wider than its weights
# a rope for short sequences; a table cut at the number of tokens; tokens before the batch
# rows of tables looked up by position, where nobody is given positions
# attention with learned biases, as written
# table, layers and head in one class; its parts in a dictionary, and logits of the last token; a head inside
FOLDERS = (
    "linear_biases", "head_in_the_base_model", "code_in_two_files", "window_by_hand",
    "scan_by_hand", "angles_that_stand_once", "stream_in_float32", "rope_that_grows",
    "cache_of_its_own", "heads_behind_a_function", "scores_grow_with_length",
    "learned_biases", "everything_in_one_class", "one_class_in_a_dictionary", "scores_from_inside",
)  # fmt: skip


# on whole sequences, with attention beside it and without any
SERVED = {"scan_by_hand": HYBRID, "learned_biases": HYBRID.replace("Hybrid", "AttentionFree")}


def write(folder: Path, name: str) -> Path:
    """The folder with weights, and what its author's code answers."""
    import torch
    from checkpoints import PROMPTS, _greedy

    from hfspeed.planner.load import load, randomise

    shutil.copytree(HUB / name, folder, ignore=shutil.ignore_patterns("__pycache__"))
    subject = load(str(folder), trust_remote_code=True)
    with torch.random.fork_rng():
        model = subject.model_class(subject.config).float().eval()
    randomise(model)
    model.save_pretrained(folder / "weights")
    shutil.move(folder / "weights" / "model.safetensors", folder)
    (folder / "expected.json").write_text(json.dumps([_greedy(model, prompt) for prompt in PROMPTS]))
    return folder


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FOLDERS)
def test_served(serving: ModuleType, tmp_path: Path, name: str) -> None:
    answer = serving.serve(write(tmp_path / name, name), trust_remote_code=True)
    assert "error" not in answer, answer.get("trace") or answer["error"]
    assert answer["served"] == [SERVED.get(name, OURS)]
    assert answer["tokens"]
    assert answer["apart"] < serving.TOLERANCE


@pytest.mark.timeout(600)
def test_one_class_over_ranks(serving: ModuleType, tmp_path: Path) -> None:
    threads = {"VLLM_CPU_OMP_THREADS_BIND": "0|1"}
    two = {"tensor_parallel_size": 2, "distributed_executor_backend": "mp", "environ": threads}
    answer = serving.serve(write(tmp_path / "brook", "one_class_in_a_dictionary"), trust_remote_code=True, **two)
    assert "error" not in answer, answer.get("trace") or answer["error"]
    assert answer["served"] == [OURS, OURS]
    assert answer["tokens"]
    assert answer["apart"] < serving.TOLERANCE
