"""One op as one line of text, and back: each kind of op has a few phrases that print and parse it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

from hfspeed.plan import rows, segments, shares
from hfspeed.plan.ops import (
    OPS,
    Attention,
    Column,
    Embed,
    Experts,
    Gated,
    Head,
    Heads,
    History,
    Keep,
    Local,
    Norm,
    Op,
    Positions,
    Recurrence,
    Rotary,
    Row,
    Share,
    Stacked,
    Whole,
)

BIAS, SPLIT, ROWS, CUT = "bias?", "split?whole", "rows {rows}", "segments {segments}"
PHRASES: dict[type, tuple[str, ...]] = {
    Column: ("{inputs} -> {outputs}", "{units} units", CUT, BIAS),
    Row: ("{inputs} -> {outputs}", BIAS),
    Whole: ("{inputs} -> {outputs}", BIAS, "by {matrix}", "plus {vector}", "turned?", "wide?"),
    Stacked: ("{parts}", "{inputs} -> {sizes}", ROWS, CUT, BIAS, SPLIT),
    Heads: (
        "{parts}",
        "{inputs} -> {heads} x {head_size} + {kv_heads} x {head_size} + {kv_heads} x {value_size}",
        ROWS,
        BIAS,
        SPLIT,
    ),
    Gated: ("{act}",),
    Norm: ("{size}", "eps {eps}", "weight {weight}", "{units} units"),
    Rotary: ("tokens at {tokens}", "{table}", "interleaved?", "fresh?"),
    Positions: ("by {given}", "like {value}", "for {word} {kinds}", "counted?", "up to {limit}"),
    Attention: (
        "{heads} heads of {head_size}",
        "{kv_heads} key heads",
        "values of {value_size}",
        "scale {scale}",
        "window {window}",
        "chunks of {chunk}",
        "softcap {softcap}",
        "sinks {sinks}",
        "alibi {alibi}",
        "measured?",
        "by_mask?",
        "{calls} times a step",
        SPLIT,
    ),
    Experts: (
        "{count} experts",
        "{top_k} chosen",
        "{inputs} -> {inner} -> back",
        "{act}",
        "gated?ungated",
        "limit {limit}",
        "alpha {alpha}",
        "beta {beta}",
        "takes {takes}",
        "up {up}",
        "down {down}",
        "up bias {up_bias}",
        "down bias {down_bias}",
        "interleaved?",
        "swapped?",
        "turned?",
        "skips?",
        "weighs_input?",
        "apart?",
    ),
    History: ("from all of {inputs}", "to {gives}", "masked by {masks}", "eager?"),
    Recurrence: ("{kind}", "state {state}", "{calls} calls", "of {parameters}", "with {settings}", "pair?", CUT),
    Embed: ("{vocab} x {size}", "scale {scale}"),
    Head: ("{vocab} x {size}", BIAS),
    Keep: ("as written", "{units} units", "outside of graphs {gives}"),
    Share: ("dimension {dim}", CUT, "stored?computed"),
    Local: ("{whole}", CUT),
}
"""``{field}`` is a field. A word before ``?`` is a flag that is told when set (``bias``), or when not set, by the word
behind (``whole``). A phrase is left out where all its fields have their defaults."""
assert set(PHRASES) == set(OPS), "every op of the plan needs its phrases"

KINDS = {kind.__name__.lower(): kind for kind in OPS}
IN_PLACE = (Attention, Local, Recurrence, History)
"""Ops that stay in the module at their path instead of replacing it."""


def where(op: Op) -> tuple[str, str]:
    """``(block, name)``: the module whose line this is, and what the op is called in it."""
    if isinstance(op, Attention):
        return op.path, "attn"
    if isinstance(op, Local):
        return op.path, op.attribute
    if isinstance(op, Recurrence):
        return op.path, op.name
    if isinstance(op, History):
        return op.path, "forward"
    block, _, name = op.path.rpartition(".")
    return block, name


def words(op: Op) -> str:
    """What the op is, without its place: ``q_proj + k_proj + v_proj, 64 -> 4 x 16 + 2 x 16 + 2 x 16, bias``."""
    return ", ".join(told for phrase in PHRASES[type(op)] if (told := _told(op, phrase)))


def parse(block: str, name: str, kind: str, text: str) -> Op:
    """The op that `where`, its kind and `words` say.

    Raises:
        ValueError: no such kind, or a phrase that it does not have.
    """
    cls = KINDS.get(kind)
    if cls is None:
        raise ValueError(f"no op is called {kind!r}; expected one of {', '.join(KINDS)}")
    path = block if cls in IN_PLACE else f"{block}.{name}" if block else name
    found: dict[str, Any] = {"path": path}
    if cls is Local:
        found["attribute"] = name
    if cls is Recurrence:
        found["name"] = name
    open_phrases = list(PHRASES[cls])
    for part in text.split(", "):
        for phrase in open_phrases:
            if (values := _read(cls, phrase, part)) is not None:
                found |= values
                open_phrases.remove(phrase)
                break
        else:
            raise ValueError(f"{path}: cannot read {part!r} of a {kind}; expected one of {open_phrases}")
    found = _usual(cls, found) | found
    if missing := sorted({f.name for f in fields(cls)} - found.keys()):
        raise ValueError(f"{path}: the {kind} lacks {', '.join(missing)}")
    op: Op = cls(**found)
    return op


def placement(op: Op, ranks: int) -> str:
    """What one of ``ranks`` ranks holds, in words; empty where there is nothing to hold."""
    match op:
        case Column():
            return f"{op.inputs} -> {_of(shares.rows_of(op, 0, ranks))}"
        case Share() | Recurrence() if op.segments:
            return _of_states(op, ranks)
        case Row():
            return f"{op.inputs // ranks} -> {op.outputs}, summed"
        case Stacked(split=True):
            return f"{op.inputs} -> {_sum(shares.widths(op, ranks))}"
        case Heads(split=True):
            return f"{op.inputs} -> {_sum(shares.widths(op, ranks))}{_repeated(op.kv_heads, ranks)}"
        case Attention(split=True):
            return _heads(op, ranks)
        case Norm() | Keep() if op.units:
            return "gathered for it"
        case Experts():
            return f"{op.count} experts of {op.inner // ranks}, summed"
        case Embed() | Head():
            return f"{-(-op.vocab // ranks)} rows, {'gathered' if isinstance(op, Head) else 'summed'}"
        case Local():
            return str(shares.counted(op, 0, ranks))
        case Gated() | Rotary() | Positions() | Norm(weight="none"):
            return ""
    return "all of it"


def _heads(op: Attention, ranks: int) -> str:
    own = [stop - start for start, stop in (shares.span(n, 0, ranks) for n in (op.heads, op.kv_heads))]
    return ", ".join(f"{n} {name}{'s' * (n > 1)}" for n, name in zip(own, ("head", "key head"), strict=True))


def _of_states(op: Share | Recurrence, ranks: int) -> str:
    if isinstance(op, Recurrence):
        return "state " + " x ".join(map(str, shares.own_state(op, ranks)))
    return f"{_of(shares.rows_of(op, 0, ranks))} of {segments.rows(op.segments)}"


def _of(spans: Iterable[shares.Span]) -> int:
    return sum(stop - start for start, stop in spans)


def _sum(sizes: tuple[int, ...]) -> str:
    return " + ".join(str(size) for size in sizes)


def _repeated(kv_heads: int, ranks: int) -> str:
    return f" (each key head on {ranks // kv_heads} ranks)" if kv_heads < ranks else ""


def _told(op: Op, phrase: str) -> str:
    if "?" in phrase:
        flag, _, unset = phrase.partition("?")
        told = getattr(op, flag) != bool(unset)
        return (unset or flag) if told else ""
    names = re.findall(r"{(\w+)}", phrase)
    usual = _usual(type(op), vars(op))
    if names and all(getattr(op, name) == usual.get(name, MISSING) for name in names):
        return ""
    return re.sub(r"{(\w+)}", lambda match: _shown(getattr(op, match[1])), phrase)


def _usual(cls: type, known: Mapping[str, Any]) -> dict[str, Any]:
    """Values of fields that go without saying."""
    usual = {f.name: f.default for f in fields(cls) if f.default is not MISSING}
    if cls is Attention and "head_size" in known:
        usual["value_size"] = known["head_size"]
    return {phrase.partition("?")[0]: phrase.endswith("whole") for phrase in PHRASES[cls] if "?" in phrase} | usual


def _shown(value: object) -> str:
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return " + ".join(rows.shown(run) if len(run) == 3 else f"{run[0]}:{run[1]}" for run in value)
    if isinstance(value, tuple):
        return " + ".join(str(item) for item in value)
    return repr(value) if isinstance(value, float) else str(value)


def _read(cls: type, phrase: str, part: str) -> dict[str, Any] | None:
    if "?" in phrase:
        flag, _, unset = phrase.partition("?")
        return {flag: not unset} if part == (unset or flag) else None
    hints = get_type_hints(cls)
    match = re.fullmatch(_pattern(phrase, hints), part)
    return None if match is None else {name: _value(hints[name], text) for name, text in match.groupdict().items()}


def _pattern(phrase: str, hints: dict[str, Any]) -> str:
    seen: set[str] = set()

    def group(match: re.Match[str]) -> str:
        name = match[1]
        if name in seen:
            return f"(?P={name})"
        seen.add(name)
        hint = str(hints[name])
        if "tuple[tuple" in hint:
            return rf"(?P<{name}>\d+(?::\d+)+(?: \+ \d+(?::\d+)+)*)"
        if "tuple[float" in hint:
            return rf"(?P<{name}>[-+.\w]+(?: \+ [-+.\w]+)*)"
        if "int" in hint:
            return rf"(?P<{name}>-?\d+(?: \+ -?\d+)*)"
        return rf"(?P<{name}>[-+.\w]+)" if "float" in hint else rf"(?P<{name}>[\w=.:+~-]+(?: \+ [\w=.:+~-]+)*)"

    return re.sub(r"\\{(\w+)\\}", group, re.escape(phrase))


def _value(hint: Any, text: str) -> Any:
    told = str(hint)
    if "tuple" in told:
        parts = text.split(" + ")
        if "tuple[tuple" in told:
            runs = "int, int, int" in told
            return tuple(rows.read(part) if runs else tuple(map(int, part.split(":"))) for part in parts)
        if "tuple[float" in told:
            return tuple(float(part) for part in parts)
        return tuple(int(part) for part in parts) if "int" in told else tuple(parts)
    if "float" in told:
        # A whole number may stand where a float is meant; it comes back as it was.
        return float(text) if re.search(r"[.en]", text) else int(text)
    return int(text) if "int" in told else text
