"""What came of holding plans against each other, as a summary and as a page of documentation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import compare

from hfspeed.plan.styles import KINDS

NAMES = {"tp": "tensor parallel", "pp": "pipeline", "ep": "experts"}
TOP = """# Plans written by hand

transformers {version} carries plans that people wrote by hand. Each was held against the one that hfspeed finds from
the code alone, at the size of the default configuration, and both were run on simulated ranks and stages: logits and
the gradient of every parameter, in float64. This page is written by
`make plans PLANS="--page docs/plans-by-hand.md"` from
the results of `make plans`{of}. A text model that only larger ones use is given an output projection,
and what the larger one would hand it beside tokens; a default configuration that its own code cannot be built from,
what it lacks.

- **same**: entry by entry.
- **different but equivalent**: both are proven, and share out the same part of the weights, or by hand also names what
  the default configuration does not have.
- **ours better**: by hand computes something else, does not run, or leaves whole what can be shared out.
- **theirs right**: by hand is proven and shares out more.
- **not inferred**: none was found, or the model could not be built or run.

"""


def summary(results: dict[str, Any]) -> str:
    """How many plans of each kind have each verdict."""
    rows = []
    for kind in KINDS:
        counts = Counter(one["kinds"][kind]["verdict"] for one in results.values() if kind in one["kinds"])
        rows.append(f"{kind}  {sum(counts.values()):3}  " + ", ".join(f"{v}: {counts[v]}" for v in compare.VERDICTS))
    outside = [name for name, one in results.items() if "out of scope" in one]
    return "\n".join([*rows, f"out of scope: {len(outside)} ({', '.join(outside)})"])


def rendered(results: dict[str, Any], commit: str = "") -> str:
    """The page, of results that ``commit`` gave."""
    of = f" of commit `{commit}`" if commit else ""
    top = TOP.replace("{version}", version("transformers")).replace("{of}", of)
    return top + "\n".join([*_counts(results), "", *_all(results)]) + "\n"


def _counts(results: dict[str, Any]) -> Iterator[str]:
    yield "| kind | plans | " + " | ".join(compare.VERDICTS) + " |"
    yield "|---|---|" + "---|" * len(compare.VERDICTS)
    for kind in KINDS:
        counts = Counter(one["kinds"][kind]["verdict"] for one in results.values() if kind in one["kinds"])
        yield (
            f"| {NAMES[kind]} | {sum(counts.values())} | " + " | ".join(str(counts[v]) for v in compare.VERDICTS) + " |"
        )
    outside = {name: one for name, one in results.items() if "out of scope" in one}
    missing = ", ".join(
        f"{sum(kind in one.get('declares', ()) for one in outside.values())} {NAMES[kind]}" for kind in KINDS
    )
    yield ""
    told = "configurations are of no decoder that a table of tokens feeds, and are not planned"
    yield f"{len(outside)} {told} ({missing}):"
    yield ""
    for name, one in outside.items():
        yield f"- {name}: {one['out of scope']}"


def _all(results: dict[str, Any]) -> Iterator[str]:
    for verdict in (compare.BETTER, compare.EQUIVALENT, compare.WORSE, compare.NOT):
        found = [
            (name, kind, one)
            for name, result in results.items()
            for kind, one in result["kinds"].items()
            if one["verdict"] == verdict
        ]
        if found:
            yield from (f"## {verdict.capitalize()}", "")
        for name, kind, one in found:
            yield from _entry(name, kind, one)


def _entry(name: str, kind: str, one: dict[str, Any]) -> Iterator[str]:
    yield f"**{name}**, {NAMES[kind]}: {_plain(one['why'])}"
    yield ""
    hand, code = one.get("by hand", {}), one.get("from code", {})
    for key in dict.fromkeys([*hand, *code]):
        if hand.get(key) != code.get(key):
            yield f"- `{key}`: {_said(hand.get(key))} by hand, {_said(code.get(key))} from code"
    if one.get("proof by hand"):
        proof = f"; from code: {_plain(one['proof from code'])}" if one.get("proof from code") else ""
        yield f"- run by hand: {_plain(one['proof by hand'])}{proof}"
    yield ""


def _said(entry: Any) -> str:
    if entry is None:
        return "nothing"
    return f"`{entry}`" if isinstance(entry, str) else f"`{tuple(entry)}`"


def _plain(text: str) -> str:
    """Without paths of this machine, and so that Markdown shows it as it is."""
    return re.sub(r"/\S+?/(?=(?:transformers|tests)/)", "", text).replace("|", "\\|").replace("<", "&lt;")
