"""An independent timing, to hold `hfspeed bench` against: ``LLM.generate`` and a clock, nothing of the benchmark's own.

``python tests/bench/by_clock.py FOLDER [--eager]`` starts native vLLM and hfspeed by turns, three times each, on the
same random prompts, and prints the ratios of their best whole runs and prefills.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

PROMPTS, INPUT, OUTPUT, TURNS = 16, 128, 64, 3


def timed(folder: str, impl: str, *, eager: bool) -> dict[str, object]:
    """Seconds of the best of three prefills and whole runs, and the class that served."""
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    import torch
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=folder, model_impl=impl, skip_tokenizer_init=True, enforce_eager=eager, max_model_len=INPUT + OUTPUT,
        enable_prefix_caching=False, disable_log_stats=True,
    )  # fmt: skip
    served = llm.apply_model(lambda model: f"{type(model).__module__}.{type(model).__name__}")[0]
    ids = torch.randint(1, 1000, (PROMPTS, INPUT), generator=torch.Generator().manual_seed(1)).tolist()
    found: dict[str, object] = {"class": served}
    for name, length in (("warm-up", OUTPUT), ("prefill", 1), ("whole", OUTPUT)):
        sampling = SamplingParams(max_tokens=length, temperature=0, ignore_eos=True, detokenize=False)
        took = []
        for _ in range(3):
            begin = time.perf_counter()
            llm.generate([{"prompt_token_ids": row} for row in ids], sampling, use_tqdm=False)
            took.append(time.perf_counter() - begin)
        found[name] = min(took)
    return found


def main() -> None:
    """Compare, or with ``--impl`` be one of the two."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("folder")
    asked.add_argument("--eager", action="store_true")
    asked.add_argument("--impl")
    given = asked.parse_args()
    if given.impl:
        print("FOUND", json.dumps(timed(given.folder, given.impl, eager=given.eager)))
        return
    best: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as caches:
        for _ in range(TURNS):
            for impl in ("vllm", "transformers"):
                own = {"VLLM_CACHE_ROOT": f"{caches}/{impl}", "TORCHINDUCTOR_CACHE_DIR": f"{caches}/{impl}/inductor"}
                done = subprocess.run(
                    [sys.executable, __file__, *sys.argv[1:], "--impl", impl],
                    env=os.environ | own, capture_output=True, text=True, check=True,
                )  # fmt: skip
                line = next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))
                found = json.loads(line.partition(" ")[2])
                assert found.pop("class").startswith("hfspeed." if impl == "transformers" else "vllm."), "served by"
                known = best.setdefault(impl, found)
                best[impl] = {name: min(known[name], found[name]) for name in found}
    for name in ("prefill", "whole"):
        native, own_time = best["vllm"][name], best["transformers"][name]
        print(f"{name}: native {native:.3f} s, hfspeed {own_time:.3f} s, ratio {native / own_time:.3f}")


if __name__ == "__main__":
    main()
