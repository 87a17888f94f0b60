"""Attention in chunks and windows that only masks say, and positions that layers count, in whole engines."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

OURS = "hfspeed.vllm.models.causal.TransformersForCausalLM"
CHUNK = 32
"""Shorter than the prompts of `checkpoints`, and a whole number of blocks of the cache."""


def write(folder: Path, maker: str, **sizes: int) -> Path:
    """The example without hints, with masks of ``maker`` on odd layers, where queries grow with their position too."""
    import torch
    from checkpoints import PROMPTS, _greedy

    from hfspeed.planner.load import randomise

    sys.path.insert(0, str(Path(__file__).parent.parent / "planner"))
    import test_spans
    from mutants import mutant

    heat = "        heat = 1 + torch.log1p(torch.floor(torch.arange(tokens) / 16))\n"
    heat += "        if self.layer_idx % 2 and memory is None:\n            query = query * heat[None, None, :, None]\n"
    changes = [*test_spans.by_layer(maker, "number % 2"), (test_spans.CALL, heat + test_spans.CALL)]
    folder.mkdir()
    subject = mutant(folder, *changes, depth=4, width=64, head_dim=32, vocab_size=256, **sizes)
    with torch.random.fork_rng():
        model = subject.model_class(subject.config).float().eval()
    randomise(model)
    model.config.use_cache = False
    model.save_pretrained(folder / "weights")
    (folder / "weights" / "model.safetensors").rename(folder / "model.safetensors")
    (folder / "expected.json").write_text(json.dumps([_greedy(model, prompt) for prompt in PROMPTS]))
    return folder


@pytest.mark.timeout(600)
@pytest.mark.parametrize("settings", [{}, {"max_num_batched_tokens": 24, "max_num_seqs": 4}], ids=["whole", "pieces"])
@pytest.mark.parametrize(
    ("maker", "sizes"),
    [
        ("create_chunked_causal_mask", {"attention_chunk_size": CHUNK}),
        ("create_sliding_window_causal_mask", {"sliding_window": 24}),
    ],
)
def test_served(
    serving: ModuleType, tmp_path: Path, maker: str, sizes: dict[str, int], settings: dict[str, Any]
) -> None:
    folder = write(tmp_path / f"spans_{maker}", maker, **sizes)
    answer = serving.serve(folder, trust_remote_code=True, block_size=32, **settings)
    assert "error" not in answer, answer.get("trace") or answer["error"]
    assert answer["served"] == [OURS]
    assert answer["tokens"]
    assert answer["apart"] < serving.TOLERANCE


@pytest.mark.timeout(600)
def test_blocks_that_do_not_fit(serving: ModuleType, tmp_path: Path) -> None:
    folder = write(tmp_path / "spans_blocks", "create_chunked_causal_mask", attention_chunk_size=CHUNK)
    answer = serving.serve(folder, trust_remote_code=True, block_size=128)
    assert "start with --block-size 32" in answer["error"]
