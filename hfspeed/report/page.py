"""The page: everything that was decided about a model, in one file that needs no network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hfspeed.emit.origin import author_of
from hfspeed.lint.finding import DOCS
from hfspeed.plan import Forward, Plan, Proof, paths
from hfspeed.plan.holdings import Holdings
from hfspeed.plan.holdings_text import HOLDS, SENDS, able, many, notes, size, told
from hfspeed.plan.sizes import Sizes
from hfspeed.refusal import Refusal, Refused
from hfspeed.report.blocks import GROUPS, blocks, counted, kinds
from hfspeed.report.memory import bars, shown
from hfspeed.report.sides import Run, coloured, sides
from hfspeed.report.slow import short, slow
from hfspeed.source import recover

SEQUENCE = 4096
"""Tokens of the sequence whose cache is told as an example."""


@dataclass(frozen=True)
class Rewritten:
    """A method that was rewritten: which, where, why, and both texts."""

    name: str
    place: str
    where: str
    notes: tuple[str, ...]
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Subject:
    """What a page is about.

    Attributes:
        name: as the user typed it.
        plan: what was decided.
        held: who holds what, under one layout.
        axes: which layouts are possible.
        command: how the page was made.
        versions: of what it was made with.
        disk: bytes of the checkpoint, 0 where there is none.
    """

    name: str
    plan: Plan
    held: Holdings
    axes: tuple[Sizes, ...]
    command: str
    versions: Mapping[str, str]
    disk: int = 0


def page(subject: Subject) -> str:
    """The page as HTML. Whatever comes from the model, names and source alike, is escaped."""
    plan, held = subject.plan, subject.held
    made, drawn = blocks(plan, held.layout.ranks), bars(held)
    return _rendered(
        "page.html.j2",
        title=plan.architecture,
        module=plan.module,
        name=subject.name,
        command=subject.command,
        versions=subject.versions,
        subject=subject,
        plan=plan,
        held=held,
        blocks=made,
        groups=GROUPS,
        counts=counted(made),
        kinds=kinds(made),
        rewritten=[_rewritten(forward) for forward in plan.forwards],
        slow=slow(plan.refusals),
        proofs=_proofs(plan.proofs),
        worst=max(plan.proofs, key=lambda proof: proof.error, default=None),
        bars=drawn,
        key=shown(drawn),
        tables=[told(held, columns) for columns in (HOLDS, SENDS)],
        notes=notes(held, subject.disk),
        sequence=SEQUENCE,
    )


def refused(name: str, refusals: Iterable[Refusal], command: str, versions: Mapping[str, str]) -> str:
    """The page of a model that is not served: each line that is to blame, and its remedy."""
    said = {"title": name, "module": "", "name": "", "command": command, "versions": versions}
    return _rendered("refused.html.j2", **said, slow=slow(refusals, fatal=True))


def _rendered(template: str, **values: object) -> str:
    style, script = _part("page.css"), _part("page.js")
    return environment().get_template(template).render(
        **values,
        docs=DOCS,
        style=Markup(style),  # noqa: S704  ours
        script=Markup(script),  # noqa: S704  ours
        hashes=[_digest(script)],
    )  # fmt: skip


def environment() -> Environment:
    """Templates of this package; everything that is not marked as safe is escaped."""
    made = Environment(
        loader=PackageLoader("hfspeed.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters |= {"size": size, "many": many, "able": able, "code": _code, "python": _python}
    return made


def _part(name: str) -> str:
    return resources.files("hfspeed.report").joinpath("templates", name).read_text("utf-8")


def _digest(text: str) -> str:
    """What a browser compares a script with before it runs it, so that nothing else can be run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _code(text: str) -> Markup:
    """A phrase whose names stand in backticks."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return Markup("{}").format(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if at % 2 else Markup("{}").format(piece)
        for at, piece in enumerate(pieces)
    )


def _python(text: str) -> Markup:
    return Markup("\n").join(coloured(text.strip("\n")))


def _rewritten(forward: Forward) -> Rewritten:
    named = f"{forward.name}.{forward.method}"
    where = ", ".join(paths.merge(forward.paths))
    try:
        author = recover(author_of(forward), forward.method)
    except Refused:
        return Rewritten(named, forward.module, where, forward.notes, tuple(sides("", forward.text)))
    place = f"{short(author.file)}:{author.line}"
    return Rewritten(named, place, where, forward.notes, tuple(sides(author.text, forward.text, author.line)))


def _proofs(proofs: Iterable[Proof]) -> list[tuple[str, list[tuple[str, list[Proof]]]]]:
    """By how they were made; claims of a kind together, the largest error first."""
    methods: dict[str, dict[str, list[Proof]]] = {}
    for proof in proofs:
        kind = proof.claim.partition(" at ")[0].partition(" of ")[0]
        methods.setdefault(proof.method, {}).setdefault(kind, []).append(proof)
    return [
        (method, [(kind, sorted(found, key=lambda one: -one.error)) for kind, found in kinds.items()])
        for method, kinds in methods.items()
    ]

