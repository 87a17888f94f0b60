"""What planning costs by number of layers: ``python tests/planning_cost.py 8 32 128 1000`` prints a table.

A Qwen3 of hidden size 1024 is planned, proven and emitted with an empty cache, then again from it, then only built on
meta by its author's code. Seconds of this process's CPU time, after imports.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from hfspeed.planner.build import build
from hfspeed.planner.serve import plan_for


def config(layers: int) -> Qwen3Config:
    """A dense model of so many equal layers."""
    return Qwen3Config(
        hidden_size=1024, intermediate_size=3072, num_hidden_layers=layers, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, vocab_size=32768, architectures=["Qwen3ForCausalLM"],
    )  # fmt: skip


def seconds(run: Callable[[], Any]) -> float:
    """CPU time of one call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def main(numbers: list[int]) -> None:
    """Print a row for each number of layers."""
    torch.set_num_threads(1)
    plan_for(config(3), Qwen3ForCausalLM)  # what is imported and set up once is no cost of a model
    print("| layers | plan, prove and emit | from the cache | built on meta, by its author |\n|---|---|---|---|")
    for layers in numbers:
        cold, cached, built = (
            seconds(run)
            for run in (
                lambda layers=layers: plan_for(config(layers), Qwen3ForCausalLM),
                lambda layers=layers: plan_for(config(layers), Qwen3ForCausalLM),
                lambda layers=layers: build(Qwen3ForCausalLM, config(layers)),
            )
        )
        print(f"| {layers} | {cold:.2f} s | {cached:.2f} s | {built:.2f} s |", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HFSPEED_CACHE_DIR"] = folder
        main([int(number) for number in sys.argv[1:]] or [8, 32, 128])
