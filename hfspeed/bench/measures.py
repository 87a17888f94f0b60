"""What is measured: names, units, and which way is better."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    """One figure.

    Attributes:
        key: its name in the JSON.
        title: how it is told.
        unit: of the absolute figure.
        more: more of it is better; ratios are turned round where it is not, so that above 1 is always better.
        places: decimals of the absolute figure.
    """

    key: str
    title: str
    unit: str
    more: bool = False
    places: int = 1


ROUND = (
    Measure("prefill", "prefill", "tok/s", more=True, places=0),
    Measure("decode", "decode", "tok/s", more=True, places=0),
    Measure("whole", "whole run", "tok/s", more=True, places=0),
    Measure("prefill_cpu", "CPU time, prefill", "ms/tok", places=3),
    Measure("decode_cpu", "CPU time, decode", "ms/tok", places=3),
    Measure("whole_cpu", "CPU time, whole run", "ms/tok", places=3),
    Measure("first", "time to first token", "ms"),
    Measure("gap", "time between tokens", "ms"),
)
"""Measured in every round."""

WARM = (
    Measure("warm_start", "warm start", "s"),
    Measure("warm_cpu", "CPU time, warm start", "s"),
)
"""Measured at every warm start."""

ONCE = (
    Measure("cold_start", "cold start", "s"),
    Measure("cold_cpu", "CPU time, cold start", "s"),
    Measure("peak", "peak memory", "GiB", places=2),
    Measure("gpu_peak", "peak GPU memory", "GiB", places=2),
    Measure("cache", "room in the cache", "tokens", more=True, places=0),
)
"""Measured once for each arm: no interval."""

MEASURES = (*ROUND, ONCE[0], WARM[0], ONCE[1], WARM[1], *ONCE[2:])
"""All of them, in the order in which they are told."""
