"""What was typed becomes a job: a preset, a folder or a name, with weights where it has none."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hfspeed.bench import weights
from hfspeed.bench.job import Job, has_weights, vocabulary
from hfspeed.bench.presets import Preset, gpus, names, preset, require_gpus
from hfspeed.errors import UsageError
from hfspeed.planner.folder import config_json, look

LOAD = {"prompts": 16, "input_len": 128, "output_len": 64}
"""One round's load, unless a preset or an option says another."""


@dataclass(frozen=True)
class Subject:
    """A job that can start.

    Attributes:
        job: what is measured.
        environ: for the arms' processes.
        comparable: every arm loads the same numbers.
    """

    job: Job
    environ: dict[str, str]
    comparable: bool


def settled(
    model: str,
    folder: Path,
    load: dict[str, int],
    flags: dict[str, Any],
    *,
    rounds: int,
    arms: int,
    restart: bool,
    starts: int = 1,
) -> Subject:
    """The job for ``model``.

    Args:
        model: a preset, a folder or a name on the hub.
        folder: of this run; a preset's configuration and weights are written into it.
        load: ``prompts``, ``input_len`` and ``output_len``, as far as they were given.
        flags: vLLM's settings, as far as they were given.
        rounds / starts: how often is measured, and how many warm starts are.
        arms: how many ways there are.
        restart: each arm starts anew in every round.

    Raises:
        UsageError: there is no such folder or configuration, or a preset's GPUs are not here.
    """
    named = preset(model)
    if named is not None:
        require_gpus(named)
        load = {n: getattr(named, n) for n in LOAD} | load
        flags = named.engine | flags
        restart = restart or named.restart
    path, config = _model(model, named, folder, str(flags.get("load_format", "")))
    if "load_format" not in flags and Path(path).is_dir() and not has_weights(Path(path)):
        flags = {**flags, "load_format": "dummy"}
    random = bool(named and named.config) or flags.get("load_format") == "dummy"
    job = Job(
        model=path,
        **(LOAD | load),
        vocabulary=vocabulary(config),
        engine=flags,
        rounds=rounds,
        starts=starts,
        restart=restart,
        together=arms,
        told=random,
    )
    return Subject(job, environment(flags, local=Path(path).is_dir()), flags.get("load_format") != "dummy")


def environment(flags: dict[str, Any], *, local: bool) -> dict[str, str]:
    """What the arms' processes need in their environment, where it is not there already."""
    wanted: dict[str, str] = {"HF_HUB_OFFLINE": "1"} if local else {}
    if flags.get("data_parallel_size", 1) == 1:
        wanted["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    if not gpus():
        wanted["VLLM_CPU_KVCACHE_SPACE"] = "1"
        ranks = flags.get("tensor_parallel_size", 1) * flags.get("pipeline_parallel_size", 1)
        wanted["VLLM_CPU_OMP_THREADS_BIND"] = _shares(ranks)
    return {name: value for name, value in wanted.items() if name not in os.environ}


def _shares(ranks: int) -> str:
    """Every core this process may use, dealt out to the ranks; one rank has them all."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    each = max(1, len(cores) // ranks)
    dealt = [cores[rank * each % len(cores) :][:each] for rank in range(ranks)]
    return "|".join(",".join(map(str, share)) for share in dealt)


def _model(model: str, named: Preset | None, folder: Path, load_format: str) -> tuple[str, dict[str, Any]]:
    """What vLLM is given, and its configuration."""
    if named is not None and named.config:
        return str(_written(named.config, folder / "model", dummy=load_format == "dummy")), named.config
    path = Path(model)
    look(model, weights=load_format != "dummy")
    if path.is_dir():
        return str(path.resolve()), config_json(path)
    name = named.model if named is not None else model
    return name, _fetched(name)


def _written(config: dict[str, Any], folder: Path, *, dummy: bool) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    if not dummy:
        weights.write(folder)
    return folder


def _fetched(name: str) -> dict[str, Any]:
    from huggingface_hub import hf_hub_download

    try:
        file = hf_hub_download(name, "config.json")
    except (OSError, ValueError) as error:
        known = ", ".join(names())
        raise UsageError(
            f"{name} is no folder here, and no model that can be fetched ({type(error).__name__}); presets: {known}"
        ) from error
    read: dict[str, Any] = json.loads(Path(file).read_text("utf-8"))
    return read
