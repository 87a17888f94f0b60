"""What a process and everything it started has used: processor time, and memory at its peak."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """User and system time of this process and its descendants, dead ones that were waited for included.

    Where there is no ``/proc``, living descendants are not seen.
    """
    dead = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = time.process_time() + dead.ru_utime + dead.ru_stime
    return own + sum(sum(_times(pid)) for pid in descendants(os.getpid()))


def peak_bytes() -> int:
    """The sum of what each living process of the tree held in memory at its own peak.

    Shared pages count once for each process that holds them.
    """
    return sum(_peak(pid) for pid in (os.getpid(), *descendants(os.getpid())))


def descendants(pid: int) -> list[int]:
    """The living children of ``pid``, their children, and so on."""
    parents: dict[int, list[int]] = {}
    for entry in PROC.glob("[0-9]*"):
        fields = _fields(int(entry.name))
        if fields:
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, queue = [], [pid]
    while queue:
        children = parents.get(queue.pop(), [])
        found += children
        queue += children
    return found


def _times(pid: int) -> list[float]:
    """Own user and system time, then that of dead children."""
    return [int(ticks) / TICKS for ticks in _fields(pid)[11:15]]


def _fields(pid: int) -> list[str]:
    """What follows the name in ``/proc/PID/stat``: state, parent, …; empty for a process that is gone."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _peak(pid: int) -> int:
    try:
        lines = (PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return own if pid == os.getpid() else 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
