"""Attention that no kernel computes, left to its author's eager function: in which modules, and by which masks."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from hfspeed.errors import RefusedError, SubjectError
from hfspeed.fusions.attention import DISTANCE
from hfspeed.graph.aside import ASIDE
from hfspeed.pattern.span import EVERYTHING, span_of
from hfspeed.plan.paths import within
from hfspeed.planner.build import build, eager
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.load import Subject
from hfspeed.planner.prompts import prompt
from hfspeed.planner.shrink import shrink
from hfspeed.planner.written_calls import Call, Seen, called
from hfspeed.recurrences.written import Mask, Written
from hfspeed.refusal import Reason, Refusal

LENGTHS = (37, 521)
"""Tokens of the prompts that are run: no sizes of a model, so that shapes cannot coincide."""
HELP = "let a module of its own be called with hidden states and masks by transformers alone, and attend in it"
Classes = frozenset[type[nn.Module]]


@dataclass(frozen=True)
class Writing:
    """Which modules of a model attend as written.

    Attributes:
        classes: of modules that attend.
        modules: of those, or of what is around them, by path in the large model: how they are called.
    """

    classes: Classes
    modules: Mapping[str, Written]

    def of(self, model_class: type[Any], config: Any) -> Mapping[str, Written]:
        """The same for a small model with a configuration of its own.

        Raises:
            RefusedError: something else is handed to its modules.
        """
        return asked_of(build(model_class, config, device="cpu", interface=False), self.classes)

    @property
    def windows(self) -> frozenset[int]:
        """Windows and chunks of its masks, and how many tokens are chosen."""
        found = {mask.size for how in self.modules.values() for mask in how.masks if mask.size}
        return frozenset(found | {count for how in self.modules.values() for count in how.counts})


def writings(subject: Subject, no: RefusedError) -> Iterator[Writing]:
    """Ways to leave attention to its author: in the modules that were refused, then in all that attend.

    Args:
        subject: what cannot be served otherwise.
        no: why. Only what single modules ask of attention can be helped: an author who has two answers, by two
            functions or by a mask and a keyword, would still have two.
    """
    if not no.refusals or any(one.wanted != "attention" or one.help == DISTANCE for one in no.refusals):
        return
    try:
        model = build(subject.model_class, subject.config, device="meta", interface=False)
        layers = max((len(one) for one in model.modules() if isinstance(one, nn.ModuleList)), default=2)
        config = shrink(subject.config, subject.model_class, layers=layers, interface=False, built=model)
    except (SubjectError, *AUTHOR_ERRORS):
        return
    known = dict(model.named_modules())
    if any(one.module not in known for one in no.refusals):
        return
    refused = frozenset(type(known[one.module]) for one in no.refusals)
    tried: list[Classes] = []
    for classes in (refused, frozenset(type(one) for one in known.values() if asks(type(one)))):
        if not classes or classes in tried:
            continue
        tried.append(classes)
        try:
            narrow = build(subject.model_class, config, device="cpu", interface=False)
            yield Writing(classes, _of_full_size(subject, asked_of(narrow, classes), narrow, model))
        except (RefusedError, SubjectError, *AUTHOR_ERRORS):
            continue


def asks(cls: type[nn.Module]) -> bool:
    """Whether a method of a module's class names transformers' table of attention functions, to attend over tokens."""
    from transformers.modeling_utils import AttentionInterface, PreTrainedModel

    if issubclass(cls, PreTrainedModel) or getattr(cls, ASIDE, False):
        return False
    for owner in cls.__mro__:
        for method in vars(owner).values() if owner not in {nn.Module, object} else ():
            function = inspect.unwrap(method) if inspect.isfunction(method) else None
            names = function.__code__.co_names if function else ()
            if any(isinstance(function.__globals__.get(name), AttentionInterface) for name in names):  # type: ignore[union-attr]
                return True
    return False


def _of_full_size(
    subject: Subject, modules: Mapping[str, Written], narrow: nn.Module, model: nn.Module
) -> dict[str, Written]:
    """The same with windows and chunks as the large model has them on meta, should a narrow one have smaller ones.

    Raises:
        RefusedError: the two make different masks.
    """
    eager(model)
    mine, full = ([span for _, span in _run(one, LENGTHS[0], stop=False).made] for one in (narrow, model))
    pairs = [((one.kind, one.size), (other.kind, other.size)) for one, other in zip(mine, full, strict=False)]
    spans = dict(pairs)
    one = all(spans[span] == other and span[0] == other[0] for span, other in pairs)
    if len(mine) > len(full) or not one:
        found = "the masks that it makes at full size are not those that a narrow model of it makes"
        no = Refusal("attention", Reason.MASK_NOT_CAUSAL, found, type(model).__name__, help=HELP)
        raise RefusedError(subject.name, (no,))
    return {
        path: replace(how, masks=tuple(Mask(m.name, *spans.get((m.kind, m.size), (m.kind, m.size))) for m in how.masks))
        for path, how in modules.items()
    }


def asked_of(model: nn.Module, classes: Collection[type[nn.Module]]) -> dict[str, Written]:
    """How the modules are called that attend as written, with eager attention and its masks everywhere.

    Where something goes into such a module that two numbers of tokens index, and that is no mask of transformers, the
    module around it is taken in its place, as long as that is part of a layer.

    Raises:
        RefusedError: there is no such module around it, or it is called more than once.
    """
    eager(model)
    runs = [_run(model, tokens) for tokens in LENGTHS]
    known = dict(model.named_modules())
    found: dict[str, Written] = {}
    widths: dict[int, int] = {}
    for path in [path for path, one in known.items() if type(one) in classes and path in runs[0].calls]:
        if within(path, found):
            continue
        at, how = path, called(runs, known[path], path, widths)
        while how is None and at:
            at = _around(at, runs[0])
            how = called(runs, known[at], at, widths) if at else None
        if how is None:
            told = f"what `{type(known[path]).__name__}` is given cannot be made anew for whole sequences"
            no = Refusal("attention", Reason.MASK_NOT_CAUSAL, told, path, help=HELP)
            raise RefusedError(type(model).__name__, (no,))
        found = {other: one for other, one in found.items() if not within(other, (at,))} | {at: how}
    return found


def _around(path: str, run: Seen) -> str:
    """The next module around one that was called, in the same layer; empty if there is none."""
    while "." in path:
        path = path.rpartition(".")[0]
        if path in run.calls and any(part.isdigit() for part in path.split(".")):
            return path
    return ""


def _run(model: nn.Module, tokens: int, *, stop: bool = True) -> Seen:
    """A prompt; what does not run to its end, as on meta, is told as far as it went if it is not to ``stop``."""
    from transformers import masking_utils
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    seen, own = Seen(tokens), ALL_MASK_ATTENTION_FUNCTIONS["eager"]

    def make(*args: Any, **keywords: Any) -> torch.Tensor | None:
        mask: torch.Tensor | None = own(*args, **keywords)
        if mask is not None:
            function, size = keywords.get("mask_function"), keywords.get("local_size")
            seen.made.append((mask, EVERYTHING if function is None else span_of(function, tokens, size)))
        return mask

    def note(path: str, *call: Any) -> None:
        seen.calls.setdefault(path, []).append(Call(*call))

    hooks = [
        one.register_forward_hook(lambda _, *call, path=path: note(path, *call), with_kwargs=True)
        for path, one in model.named_modules()
        if path
    ]
    try:
        made = patch.dict(ALL_MASK_ATTENTION_FUNCTIONS._global_mapping, {"eager": make})
        if next(model.parameters()).is_meta:  # where nobody could look for several sequences in one row
            single: Any = patch.object(masking_utils, "find_packed_sequence_indices", lambda *_: None, create=True)
        else:
            single = nullcontext()
        with torch.no_grad(), made, single:
            model(**prompt(model, tokens))
    except AUTHOR_ERRORS:
        if stop:
            raise
    finally:
        for hook in hooks:
            hook.remove()
    return seen
