"""Serve a tiny checkpoint with vLLM in a forked child, and compare it with what transformers answered."""

from __future__ import annotations

import functools
import gc
import json
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOLERANCE = 2e-3
# ranks spin while they wait for each other, so on a machine that is busy with other things two of them are slow
LIMIT = 500
DEFAULTS: dict[str, Any] = {
    "model_impl": "transformers",
    "skip_tokenizer_init": True,
    "dtype": "float32",
    "enforce_eager": True,
    "max_model_len": 128,
    "distributed_executor_backend": "uni",
    "disable_log_stats": True,
}


def settle(folder: Path) -> None:
    """The environment of every engine in these tests; to be called before vLLM is imported."""
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "WARNING"),
        "VLLM_CACHE_ROOT": str(folder / "vllm"),
        "HFSPEED_CACHE_DIR": str(folder / "hfspeed"),
        "VLLM_NO_USAGE_STATS": "1",
    }


def serve(
    checkpoint: Path,
    *,
    environ: dict[str, str] | None = None,
    ask: Callable[..., dict[str, Any]] | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """What an engine says: ``served``, ``tokens``, ``apart``, or ``error``; or what ``ask`` gives."""
    warm()
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(theirs, checkpoint, environ or {}, ask or answers, settings))
    child.start()
    theirs.close()
    try:
        answer = ours.recv() if ours.poll(LIMIT) else {"error": f"no answer within {LIMIT} s"}
    except EOFError:
        answer = {"error": "the child died"}
    if child.is_alive():
        child.join(10)
    if child.is_alive():
        child.kill()
    child.join()
    return answer


@functools.cache
def warm() -> None:
    """Import what every child needs, once; frozen, so that children's many collections do not walk it."""
    import vllm
    import vllm.v1.engine.core
    import vllm.v1.worker.cpu_worker

    assert vllm
    gc.collect()
    gc.freeze()


def _child(
    pipe: Any, checkpoint: Path, environ: dict[str, str], ask: Callable[..., dict[str, Any]], settings: dict[str, Any]
) -> None:
    import torch

    os.environ |= environ
    os.setpgrp()
    if settings.get("enforce_eager", True):
        # vLLM compiles a helper of its sampler even then
        torch._dynamo.config.disable = True
    start = time.time()
    try:
        answer = ask(checkpoint, **settings)
    except BaseException as error:  # noqa: BLE001  whatever stopped the engine is the answer
        cause = error
        answer = {"error": f"{type(cause).__name__}: {cause}", "trace": traceback.format_exc()}
    answer["seconds"] = round(time.time() - start, 1)
    pipe.send(answer)
    pipe.close()
    os._exit(0)


def answers(
    checkpoint: Path,
    *,
    load_only: bool = False,
    measured: bool = False,
    repeats: int = 1,
    lora: str = "",
    counts: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest

    defaults = DEFAULTS | ({"worker_extension_cls": "measuring.Extension"} if measured else {})
    nothing = graphs() if counts else {}
    llm = LLM(model=str(checkpoint), **(defaults | settings))
    answer: dict[str, Any] = {"served": llm.apply_model(served)}
    if measured:
        answer |= {"held": llm.collective_rpc("measurement"), "specs": llm.collective_rpc("get_kv_cache_spec")}
    if load_only:
        return answer
    wanted = json.loads((checkpoint / "expected.json").read_text())
    length = len(wanted[0]["tokens"])
    sampling = SamplingParams(max_tokens=length, temperature=0, logprobs=1, ignore_eos=True, detokenize=False)
    prompts = [{"prompt_token_ids": one["prompt"]} for one in wanted]
    request = LoRARequest("one", 1, lora) if lora else None
    started = {name: number - nothing[name] for name, number in graphs().items()} if counts else {}
    if counts:
        llm.generate(prompts[:1], sampling, use_tqdm=False)  # vLLM compiles a helper of its sampler now
    before = graphs() if counts else {}
    for _ in range(repeats):
        outputs = llm.generate(prompts, sampling, use_tqdm=False, lora_request=request)
    apart, tokens, gaps = 0.0, True, []
    got_all: list[Any] = []
    for one, output in zip(wanted, outputs, strict=True):
        got = output.outputs[0]
        tokens = tokens and list(got.token_ids) == one["tokens"]
        chosen = [entry[token].logprob for entry, token in zip(got.logprobs, got.token_ids, strict=True)]
        got_all.append((list(got.token_ids), chosen))
        apart = max(apart, *(abs(a - b) for a, b in zip(chosen, one["logprobs"], strict=True)))
        same = [a == b for a, b in zip(got.token_ids, one["tokens"], strict=True)]
        alike = same.index(False) + 1 if False in same else len(same)  # behind it the prompts differ
        gaps += [abs(a - b) for a, b in zip(chosen[:alike], one["logprobs"], strict=False)]
    if counts:
        later = {name: number - before[name] for name, number in graphs().items()}
        answer |= {"compiled": started, "later": later, "layers": len(llm.apply_model(layers)[0])}
    cached = sum(output.num_cached_tokens or 0 for output in outputs)
    mean = sum(gaps) / len(gaps)
    return answer | {"tokens": tokens, "apart": apart, "mean": mean, "cached": cached, "got": got_all}


def served(model: Any) -> str:
    return f"{type(model).__module__}.{type(model).__name__}"


def layers(model: Any) -> list[str]:
    return [type(layer).__name__ for layer in model.get_submodule(model.plan.stages.layers)]


def graphs() -> dict[str, int]:
    """What torch has compiled so far: whole graphs, the breaks in them, and pieces that layers may share."""
    import torch._inductor.metrics as inductor
    from torch._dynamo.utils import compilation_time_metrics, counters

    return {
        "graphs": counters["stats"]["unique_graphs"],
        "breaks": sum(counters["graph_break"].values()),
        "traced": len(compilation_time_metrics.get("invoke_subgraph_trace", ())),
        "kernels": inductor.generated_kernel_count,
    }
