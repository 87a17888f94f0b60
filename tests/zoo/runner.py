"""Engines over many checkpoints: vLLM is imported once, then each family has a process of its own."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import board
import serving

BFLOAT16 = 0.05
"""Mean distance of log probabilities that two runs in bfloat16 may have."""

WORKERS = "WorkerProc initialization failed"
"""All that is said of ranks that stop in processes of their own; one rank in this one says why."""


def run(
    families: dict[str, dict[str, Any]], folder: Path, *, ranks: int, jobs: int | None, limit: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Results as they come.

    Args:
        families: checkpoint and dtype by name.
        folder: for caches of this run alone, so that every plan is made anew.
        ranks: tensor-parallel ranks.
        jobs: engines at a time.
        limit: seconds that one may take.
    """
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    serving.settle(folder)
    serving.LIMIT = limit
    serving.warm()
    cores = sorted(os.sched_getaffinity(0))
    jobs = jobs or max(1, len(cores) // ranks)
    context = multiprocessing.get_context("fork")
    todo: Any = context.SimpleQueue()
    done: Any = context.SimpleQueue()
    for entry in [*families.items(), *[None] * jobs]:
        todo.put(entry)
    own = [[cores[(job * ranks + rank) % len(cores)] for rank in range(ranks)] for job in range(jobs)]
    workers = [context.Process(target=_work, args=(todo, done, mine)) for mine in own]
    for worker in workers:
        worker.start()
    for _ in families:
        yield done.get()
    for worker in workers:
        worker.join()


def _work(todo: Any, done: Any, cores: list[int]) -> None:
    os.sched_setaffinity(0, cores)
    environ = {"VLLM_CPU_OMP_THREADS_BIND": "|".join(map(str, cores)), "OMP_NUM_THREADS": "1"}
    settings: dict[str, Any] = {}
    if len(cores) > 1:
        settings = {"tensor_parallel_size": len(cores), "distributed_executor_backend": "mp"}
    while (entry := todo.get()) is not None:
        name, family = entry
        answer = serving.serve(Path(family["folder"]), environ=environ, dtype=family["dtype"], **settings)
        if settings and WORKERS in answer.get("error", ""):
            alone = serving.serve(Path(family["folder"]), environ=environ, dtype=family["dtype"])
            answer = alone if "error" in alone else _laid_out(family["folder"], len(cores)) or answer
        answer["dtype"] = family["dtype"]
        tolerance = BFLOAT16 if family["dtype"] == "bfloat16" else serving.TOLERANCE
        done.put((name, board.outcome(answer, tolerance)))


def _laid_out(folder: str, ranks: int) -> dict[str, Any] | None:
    """What a plan says of so many ranks, as an answer, if it refuses them."""
    from hfspeed.errors import RefusedError
    from hfspeed.planner.decide import decide
    from hfspeed.planner.load import load
    from hfspeed.vllm.layout import check

    try:
        check(decide(load(folder)), ranks=ranks, stages=1)
    except RefusedError as no:
        return {"error": f"RefusedError: {no}", "trace": "", "seconds": 0}
    return None
