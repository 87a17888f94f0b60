"""Many files at once: from the cache where they are known, on every core where they are many."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hfspeed.lint.cache import Cache
from hfspeed.lint.disk import Disk
from hfspeed.lint.engine import Scan, read, scan

MANY = 48
BATCH = 16
FEW = 4


def scans(files: Sequence[Path], disk: Disk, cache: Cache) -> dict[Path, Scan]:
    """What each file says; with changes that are not written yet, nothing is looked up and nothing kept."""
    if disk.changed:
        return {file: scan(read(file, disk)) for file in files}
    found = {file: known for file in files if (known := cache.get(file)) is not None}
    new = [file for file in files if file not in found]
    for file, scanned in zip(new, _all(new), strict=True):
        cache.put(file, scanned)
        found[file] = scanned
    return {file: found[file] for file in files}


def _all(files: Sequence[Path]) -> list[Scan]:
    batches = [files[start : start + BATCH] for start in range(0, len(files), BATCH)]
    cores = min(len(os.sched_getaffinity(0)), 8, len(batches))
    if len(files) < MANY or cores < 2:
        return [one for batch in batches for one in _batch(batch)]
    from concurrent.futures import ProcessPoolExecutor  # slow to import, and seldom wanted

    with ProcessPoolExecutor(cores) as pool:
        return [one for done in pool.map(_batch, batches) for one in done]


def _batch(files: Sequence[Path]) -> list[Scan]:
    with _no_interruptions(collect=len(files) > FEW):
        return [scan(read(file)) for file in files]


@contextmanager
def _no_interruptions(*, collect: bool) -> Iterator[None]:
    """Without the collector of cycles, which would walk every tree again and again; a batch bounds what it leaves."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
        if collect:
            gc.collect()
