"""Attention that does not say it is causal: whether masks make it so, and which switch of a configuration would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from hfspeed.errors import SubjectError
from hfspeed.pattern.measure import DECODER
from hfspeed.pattern.span import Span
from hfspeed.plan import Plan
from hfspeed.planner.build import build, eager, randomise
from hfspeed.planner.draft import draft
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.layers import layers_needed
from hfspeed.planner.load import Subject
from hfspeed.planner.precision import in_dtype
from hfspeed.planner.prompts import prompt
from hfspeed.planner.remake import remake, spots
from hfspeed.planner.shrink import shrink
from hfspeed.planner.study import Study, study
from hfspeed.planner.verdicts import Verdicts
from hfspeed.planner.witness import distance
from hfspeed.recurrences.written import Written
from hfspeed.reference.asking import ids_name, scores

TOKENS = 12
LIKELY = "is_decoder"
"""The usual name of the switch, which is tried first."""


def begun(
    subject: Subject,
    built: Any = None,
    spans: Mapping[str, Span] | None = None,
    *,
    as_written: bool = False,
    written: Mapping[str, Written] | None = None,
) -> tuple[Study, Plan]:
    """The large model looked at, and a first plan of it: with causal attention where its masks make it so.

    ``spans`` are what its masks say that no keyword does; its attention is known to call the interface then. What
    attends by hand may be left ``as_written``, without masks by transformers; ``written`` modules attend eagerly,
    by masks made for them.
    """
    how = None if spans is None and not as_written and written is None else True
    full = study(
        subject.model_class, subject.config, real=False, built=built, interface=how, spans=spans, written=written
    )
    first, _ = draft(full, Verdicts())
    told = [no for no in first.refusals if no.wanted == "attention" and no.help == DECODER]
    if not told:
        return full, first
    try:
        layers, how = layers_needed(first, 2), full.interface
        config = shrink(subject.config, subject.model_class, layers=layers, windows=full.windows, interface=how)
    except SubjectError:
        return full, first
    if full.interface and _ahead(subject.model_class, config, True) is False:
        full.take_masks()
        return full, draft(full, Verdicts())[0]
    help_ = _remedy(subject.model_class, config, full.interface)
    return full, replace(first, refusals=tuple(replace(no, help=help_) if no in told else no for no in first.refusals))


def _remedy(model_class: type[Any], config: Any, interface: bool) -> str:
    """What to tell: a switch by which no token sees later ones, if there is one."""
    off = [spot for spot, value in spots(config) if value is False]
    for spot in sorted(off, key=lambda one: one[1] != LIKELY):
        try:
            turned = remake(config, {spot: True})
        except AUTHOR_ERRORS:
            continue
        if _ahead(model_class, turned, interface) is False:
            return f"an encoder cannot generate; configure it as a decoder (`{spot[1]}: true` in config.json)"
    return "an encoder cannot generate, and no switch in its configuration makes it a decoder"


def _ahead(model_class: type[Any], config: Any, interface: bool) -> bool | None:
    """Whether tokens see later ones, by the author's masks and any attention supported; ``None`` if it does not run.

    Where masks are left out because attention is thought to be causal by itself, only eager attention may be so.
    """
    own = ("eager", "sdpa") if getattr(model_class, "_supports_sdpa", False) else ("eager",)
    try:
        model = in_dtype(build(model_class, config, device="cpu", interface=interface), torch.float64)
        randomise(model)
        return any(_sees(model, name) for name in (own if interface else ("",)))
    except (*AUTHOR_ERRORS, SubjectError):
        return None


def _sees(model: Any, attention: str) -> bool:
    if attention:
        eager(model, attention)
    given = prompt(model, TOKENS)
    name = ids_name(model)
    other = given | {name: given[name].clone()}
    other[name][:, -1] += 1
    with torch.no_grad():
        one, two = (scores(model(**ask)) for ask in (given, other))
    if one.shape[1] != TOKENS:
        return False  # it answers its last token alone; the proof asks for each, of all prompts that end with it
    one, two = one[:, : TOKENS - 1], two[:, : TOKENS - 1]
    return not distance(one, two) <= 1e-9
