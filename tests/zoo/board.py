"""What is told of a run over the zoo: one line per family, the sums, and what changed."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

EXACT, REFUSED, DIFFERENT, FAILED = "exact", "refused", "DIFFERENT", "FAILED"
WIDTH = 150


def outcome(answer: dict[str, Any], tolerance: float) -> dict[str, Any]:
    """An engine's answer as a result.

    Exact: every token, every log probability within ``tolerance``. In bfloat16 an author's own two runs need not
    give one token, so there the mean distance over the tokens before the first that differs decides.
    """
    seconds = answer.get("seconds")
    if "error" in answer:
        refused = any(word in answer["error"] for word in ("RefusedError", "SubjectError", "hfspeed serves"))
        return {"outcome": REFUSED if refused else FAILED, "why": answer["error"], "seconds": seconds}
    served = answer["served"][0]
    if "hfspeed" not in served:
        return {"outcome": FAILED, "why": f"served by {served}", "seconds": seconds}
    found = {"apart": answer["apart"], "mean": answer["mean"], "seconds": seconds}
    if "bfloat16" in answer["dtype"]:
        return found | {"outcome": EXACT if answer["mean"] < tolerance else DIFFERENT}
    right = answer["tokens"] and answer["apart"] < tolerance
    return found | {"outcome": EXACT if right else DIFFERENT}


def line(name: str, result: dict[str, Any]) -> str:
    """One family."""
    told = _short(result)
    if "apart" in result:
        told = f"off by up to {result['apart']:.1e}, {result['mean']:.1e} in the mean"
    return f"{name:24} {result['outcome']:10} {result.get('seconds') or 0:6.1f} s  {told}"


def _short(result: dict[str, Any]) -> str:
    """The reason: the first line of a refusal that names something, without the machine's folders."""
    lines = [one.strip() for one in str(result.get("why", "")).split("\n") if one.strip()]
    told = lines[1] if len(lines) > 1 else lines[0] if lines else "no word"
    return re.sub(r"/\S*/(?=[^/\s]+\.py)", "", told)[:WIDTH]


def summary(results: dict[str, dict[str, Any]], before: dict[str, dict[str, Any]]) -> str:
    """Sums, reasons, and what changed since ``before``."""
    count = Counter(one["outcome"] for one in results.values())
    kinds = ", ".join(f"{count[kind]} {kind}" for kind in (EXACT, REFUSED, DIFFERENT, FAILED))
    lines = ["", f"{kinds} of {len(results)}"]
    for kind in (DIFFERENT, FAILED, REFUSED):
        lines += [line(name, one) for name, one in sorted(results.items()) if one["outcome"] == kind]
    changed = [
        f"  {name}: {before[name]['outcome']} -> {one['outcome']}"
        for name, one in sorted(results.items())
        if name in before and before[name]["outcome"] != one["outcome"]
    ]
    if before:
        lines += ["", "changed since the last run:", *(changed or ["  nothing"])]
    return "\n".join(lines)
