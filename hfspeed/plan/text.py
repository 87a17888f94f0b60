"""The canonical text of a plan: what `hfspeed plan` prints, golden files hold and people read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import unified_diff

from hfspeed.plan import lines, paths, shares
from hfspeed.plan.ops import Experts, Op
from hfspeed.plan.plan import Plan
from hfspeed.plan.proof import Proof
from hfspeed.refusal import Refusal

TOP = "(top)"
"""Heads the ops that lie in no module of the wrapper."""


def render(plan: Plan, *, ranks: int = 1, stages: int = 1, spread: int = 1, errors: bool = True) -> str:
    """The text of a plan; deterministic, ends with a newline. Blocks equal but for layer numbers are told once.

    Args:
        plan: the plan.
        ranks: tell what each of so many ranks holds; the plan must keep law 3 on them.
        spread: tell which experts each of so many ranks holds whole.
        stages: tell where so many stages are cut; the plan must keep law 4 with them.
        errors: tell how far each proof was off. Rounding differs from machine to machine, so golden files do without.
    """
    sections = [
        _header(plan, ranks, stages),
        *("\n".join(block) for block in _blocks(plan.ops, ranks)),
        _section("rewritten", _rewritten(plan)),
        _section("experts", _experts(plan.ops, spread)),
        _section("stages", _stages(plan, stages)),
        _section("wrapper", _wrapper(plan)),
        _section("proofs", _proofs(plan.proofs, errors)),
        _section("refused", refused(plan.refusals)),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def parse(text: str) -> tuple[Op, ...]:
    """The ops of a rendered plan, ordered by path with numbers as numbers.

    Raises:
        ValueError: a line of a block cannot be read; says which.
    """
    found: list[Op] = []
    block: str | None = None
    for number, line in enumerate(text.splitlines()[2:], start=3):
        if not line.strip():
            continue
        if not line.startswith(" "):
            block = None if line.endswith(":") else line.removesuffix(TOP)
            continue
        if block is None:
            continue
        match = re.fullmatch(r" +(\S+) +(\w+) +(.*?)(?:  +\| .*)?", line)
        if match is None:
            raise ValueError(f"line {number}: expected a name, a kind and what it is, found {line.strip()!r}")
        try:
            found += [lines.parse(path, match[1], match[2], match[3]) for path in paths.expand(block)]
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return tuple(sorted(found, key=order))


def order(op: Op) -> tuple[object, ...]:
    """A key that sorts ops by path, numbers as numbers, then by name and kind."""
    pieces = [(0, int(piece), "") if piece.isdigit() else (1, 0, piece) for piece in op.path.split(".")]
    return pieces, lines.where(op)[1], type(op).__name__


def diff(old: str, new: str, *, names: tuple[str, str] = ("old", "new")) -> str:
    """What changed between two rendered plans, as a unified diff; empty when nothing did."""
    return "\n".join(unified_diff(old.splitlines(), new.splitlines(), *names, n=2, lineterm=""))


def refused(refusals: Iterable[Refusal]) -> Iterator[str]:
    """Refusals as lines; those that differ only in the module are told once."""
    alike: dict[tuple[str, str, str, str, str], list[str]] = {}
    for one in refusals:
        place = f"{one.place}".rpartition("site-packages/")[2] if one.place else ""
        alike.setdefault((one.wanted, str(one.reason), one.found, place, one.help), []).append(one.module)
    for (wanted, reason, found, place, help_), modules in alike.items():
        at = ", ".join(paths.merge(module for module in modules if module))
        yield f"{wanted} in {at} ({reason})" if at else f"{wanted} ({reason})"
        yield f"  {place}: {found}" if place else f"  {found}"
        if help_:
            yield f"  help: {help_}"


def _header(plan: Plan, ranks: int, stages: int) -> str:
    layers = f", {plan.stages.count} layers" if plan.stages else ""
    placed = f"; right of | what each of {ranks} ranks holds" if ranks > 1 else ""
    cut = f"; in {stages} stages" if stages > 1 else ""
    return f"{plan.architecture} of {plan.module}\n{plan.size} wide{layers}{cut}{placed}"


def _blocks(ops: Iterable[Op], ranks: int) -> Iterator[list[str]]:
    """Each distinct block once: a line with its paths, then a line per op."""
    blocks: dict[str, list[tuple[str, str, str, str]]] = {}
    for op in ops:
        block, name = lines.where(op)
        placed = lines.placement(op, ranks) if ranks > 1 else ""
        blocks.setdefault(block, []).append((name, type(op).__name__.lower(), lines.words(op), placed))
    alike: dict[tuple[str, tuple[tuple[str, str, str, str], ...]], list[str]] = {}
    for block, rows in blocks.items():
        alike.setdefault((paths.shape(block), tuple(rows)), []).append(block)
    for (_, entries), found in alike.items():
        for pattern in paths.merge(found):
            yield [pattern or TOP, *_table(entries)]


def _table(entries: Iterable[tuple[str, str, str, str]]) -> Iterator[str]:
    rows = list(entries)
    wide = [max(len(row[column]) for row in rows) for column in range(3)]
    for name, kind, what, placed in rows:
        line = f"  {name:<{wide[0]}}  {kind:<{wide[1]}}  {what}"
        yield f"{line:<{sum(wide) + 6}}  | {placed}" if placed else line


def _rewritten(plan: Plan) -> Iterator[str]:
    for forward in plan.forwards:
        named = forward.name if forward.name == forward.base else f"{forward.name} ({forward.base})"
        yield f"{named} at {', '.join(paths.merge(forward.paths))}"
        yield from (f"  {note}" for note in forward.notes)


def _stages(plan: Plan, count: int) -> Iterator[str]:
    stages = plan.stages
    if stages is None:
        return
    yield f"{stages.layers} can be cut; `{stages.carried}` crosses"
    if count < 2:
        return
    for number, (start, stop) in enumerate(shares.cuts(stages.count, count)):
        held = [
            *(stages.first if number == 0 else ()),
            f"{stages.layers}.{start}" if stop - start == 1 else f"{stages.layers}.[{start}-{stop - 1}]",
            *((*stages.last, plan.wrapper.head) if number == count - 1 else ()),
        ]
        yield f"  {number}: {', '.join(held)}"


def _experts(ops: Iterable[Op], ranks: int) -> Iterator[str]:
    """Which experts of each layer are on which rank."""
    counts: dict[int, list[str]] = {}
    for op in ops:
        if isinstance(op, Experts) and ranks > 1:
            counts.setdefault(op.count, []).append(op.path)
    for count, found in counts.items():
        yield f"{', '.join(paths.merge(found))} over {ranks} ranks"
        for rank in range(ranks):
            start, stop = shares.experts(count, rank, ranks)
            yield f"  {rank}: {start}-{stop - 1}" if stop - start > 1 else f"  {rank}: {start}"


def _wrapper(plan: Plan) -> Iterator[str]:
    yield f"{plan.wrapper.base or plan.architecture} takes {', '.join(plan.wrapper.keywords)}"
    if (end := plan.wrapper.ending) is not None:
        yield f"hidden states are what {end.at} {'is given' if end.given else 'gives'}"
    if told := plan.wrapper.constants:
        yield "it is always told " + ", ".join(f"{name}={value}" for name, value in told)
    if plan.wrapper.first_position:
        yield f"positions begin at {plan.wrapper.first_position}, and padding in a prompt counts as any token does"
    if limit := plan.wrapper.limit:
        yield f"sequences of up to {limit} tokens; start vLLM with --max-model-len {limit} or less"
    if room := plan.wrapper.room:
        yield f"positions have rows for sequences of up to {room} tokens"
    yield " then ".join(["logits are " + plan.wrapper.head, *plan.wrapper.after])
    for tie in plan.ties:
        yield f"{tie.source} is {tie.target}"


def _proofs(proofs: tuple[Proof, ...], errors: bool) -> Iterator[str]:
    if proofs and errors:
        worst = max(proofs, key=lambda proof: proof.error)
        yield f"largest error {worst.error:.1e} ({worst.claim}), allowed {worst.bound:.0e}"
    methods: dict[str, list[Proof]] = {}
    for proof in proofs:
        methods.setdefault(proof.method, []).append(proof)
    for method, found in methods.items():
        yield method
        yield from (f"  {proof.error:.1e}  {proof.claim}" if errors else f"  {proof.claim}" for proof in found)


def _section(title: str, found: Iterable[str]) -> str:
    body = [f"  {line}" for line in found]
    return "\n".join([f"{title}:", *body]) if body else ""
