"""Rewritten sites become the classes to emit: one per author's class and text, named after the author's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hfspeed.pattern.site import Site
from hfspeed.plan import Forward


def forwards(sites: Iterable[Site]) -> tuple[Forward, ...]:
    """One `Forward` for each distinct rewritten class, in order of first use."""
    groups: dict[tuple[str, str, str], list[Site]] = {}
    for site in sites:
        cls = site.call.cls
        groups.setdefault((cls.__module__, cls.__qualname__, site.text()), []).append(site)
    count: Counter[str] = Counter()
    found = []
    for (module, base, text), members in groups.items():
        count[base] += 1
        name = base.replace(".", "_") + (str(count[base]) if count[base] > 1 else "")
        first = members[0]
        found.append(
            Forward(
                name=name,
                module=module,
                base=base,
                text=text,
                notes=tuple(first.notes),
                paths=tuple(site.path for site in members),
                promised=tuple(dict.fromkeys(first.promised)),
            )
        )
    return tuple(found)
