"""Rewritten sites become the classes to emit: one per author's class and text, named after the author's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hfspeed.pattern.attend_edit import NOTE, AttentionEdit
from hfspeed.pattern.site import Site
from hfspeed.plan import Forward


def forwards(sites: Iterable[Site]) -> tuple[Forward, ...]:
    """One `Forward` for each distinct rewritten class, in order of first use."""
    groups: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[Site]] = {}
    for site in sites:
        cls = site.call.cls
        groups.setdefault((cls.__module__, cls.__qualname__, _texts(site)), []).append(site)
    count: Counter[str] = Counter()
    found = []
    for (module, base, texts), members in groups.items():
        count[base] += 1
        name = base.replace(".", "_") + (str(count[base]) if count[base] > 1 else "")
        first = members[0]
        found += [
            Forward(
                name=name,
                module=module,
                base=base,
                text=text,
                notes=tuple(first.notes),
                paths=tuple(site.path for site in members),
                promised=tuple(dict.fromkeys(first.promised)),
                method=method,
            )
            for method, text in texts
        ]
    return tuple(found)


def _texts(site: Site) -> tuple[tuple[str, str], ...]:
    """Every rewritten method of a site."""
    own = {"forward": site.text()} if site.changes or not site.methods else {}
    return tuple((own | site.methods).items())


def by_hand(site: Site, change: AttentionEdit) -> Site:
    """Give the site of a module whose attention is computed by hand the change that calls paged attention."""
    site.notes.append(NOTE)
    site.promised.append("attn")
    if change.method == "forward":
        site.changes += change.changes
    else:
        site.methods[change.method] = change.text
    return site
