"""Changes of forwards that no fusion makes: shapes that fit shares, masks that are not made, positions handed over."""

from __future__ import annotations

from dataclasses import replace

from hfspeed.pattern.counted import NOTE as COUNTED
from hfspeed.pattern.edit import outside
from hfspeed.pattern.first_rows import NAME
from hfspeed.pattern.masks import NOTE
from hfspeed.pattern.row_checks import row_checks
from hfspeed.pattern.site import Site, recovered_of
from hfspeed.pattern.widths import NOTE as SHAPES
from hfspeed.pattern.widths import widths
from hfspeed.plan import History
from hfspeed.plan.paths import within
from hfspeed.planner.tables import rowwise, tables
from hfspeed.planner.work import Draft
from hfspeed.refusal import Refused


def shapes(work: Draft) -> None:
    """Where ranks hold shares, shapes must not name the number of all heads."""
    for path, split in work.shaped.items():
        site = work.sites.get(path) or Site(work.study.recording.calls[path])
        try:
            changes = list(widths(site.call, site.recovered, split, [change.node for change in site.changes]))
        except Refused:
            continue
        if changes:
            work.sites[path] = site
            site.changes += changes
            site.notes.append(SHAPES)


def masks(work: Draft) -> None:
    """Where attention is no longer computed by hand, masks are only in the way."""
    for path, changes in work.study.masks.items() if work.verdicts.masks else ():
        site = work.sites.setdefault(path, Site(work.study.recording.calls[path]))
        site.changes += outside(changes, site.changes)
        site.notes.append(NOTE)


def positions(work: Draft) -> None:
    """Several sequences share a row, so nobody counts positions along it, and tables have rows for all positions."""
    apart = [op.path for op in work.ops if isinstance(op, History)]  # there all of a sequence is seen, and counted
    for path, changes in (rowwise(work.study) if work.verdicts.rows else work.study.positions).items():
        if within(path, apart):
            continue
        site = work.sites.setdefault(path, Site(work.study.recording.calls[path]))
        site.changes += outside(changes, site.changes)
        site.notes.append(COUNTED)
    _any_length(work)
    taken = {op.path for op in work.ops}
    if {"position_ids", NAME} & set(work.wrapper.keywords):
        work.ops += [op for op in tables(work.study) if op.path not in taken and not within(op.path, apart)]


def _any_length(work: Draft) -> None:
    """Where rows are rewritten to hold several sequences, a check of their length becomes one of each sequence."""
    handed = {p for p, site in work.sites.items() if COUNTED in site.notes}
    for path in handed | ({work.wrapper.base} if work.wrapper.ending is not None else set()):
        call = work.study.recording.calls[path]
        try:
            recovered = recovered_of(call.cls, "forward")  # type: ignore[arg-type]  # mypy takes no class for hashable
        except Refused:
            continue
        for change, most in row_checks(recovered, call.module):
            site = work.sites.setdefault(path, Site(call))
            if new := outside([change], site.changes):
                site.changes = [*outside(site.changes, new), *new]
                limit = min(most, work.wrapper.limit or most)
                work.wrapper = replace(work.wrapper, limit=limit)
