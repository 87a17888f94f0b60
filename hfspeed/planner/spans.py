"""The masks that a model makes with transformers' functions: what of them no keyword tells its attention.

Asked for by a serving backend these functions make none, so a window or a chunk that is only in a mask would be lost.
They are asked once under a name for which they make masks, and each is held against what the call of attention says.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from hfspeed.errors import RefusedError, SubjectError
from hfspeed.graph.attend import causal
from hfspeed.graph.positions import forward_code
from hfspeed.graph.tensors import tensors
from hfspeed.pattern.replacement import place_of
from hfspeed.pattern.span import EVERYTHING, FARTHEST, ODD, Span, span_of
from hfspeed.plan import History, Plan
from hfspeed.planner.build import attending, build
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.load import Subject
from hfspeed.planner.prompts import prompt
from hfspeed.planner.shrink import shrink
from hfspeed.planner.span_rows import KINDS, Calls, kinds_of_rows, united, with_other_buffers
from hfspeed.planner.study import Study
from hfspeed.recurrences.written import WRITTEN, Written, write_all
from hfspeed.refusal import Reason, Refusal

NAME = "hfspeed_spans"
"""The attention implementation for which masks are made, and looked at."""
FEW, MANY = 40, 512
"""Tokens of the prompt. Where it can be run, one has most token ids in its midst, for masks that are made of them."""
LARGE = 1 << 12
"""Tokens beyond which no mask of all of them by all of them is made."""
WINDOW = "sliding_window"
"""What a configuration calls it, in transformers' functions."""
MAKERS = "transformers.masking_utils"


@dataclass
class Spans:
    """What one run showed.

    Attributes:
        made: each mask that was made, with its storage, so that it is known again.
        calls: by module, the span of each call of attention, ``None`` where it got no mask, and the window it was told.
        kept: addresses of masks that modules got which attend as their author wrote it.
    """

    made: list[tuple[torch.Tensor, Span]] = field(default_factory=list)
    calls: Calls = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)

    @property
    def told(self) -> bool:
        """Every mask says what keywords say as well."""
        used = [one for calls in self.calls.values() for one in calls]
        windows = {window for _, window in used}
        made = [span for mask, span in self.made if mask.untyped_storage().data_ptr() not in self.kept]
        return all(span == EVERYTHING or (span.window in windows and not span.odd) for span in made) and all(
            span is None or span == EVERYTHING or span == Span(window=window) for span, window in used
        )

    @property
    def by_module(self) -> dict[str, Span]:
        """The span of every module that gets masks; odd where its calls get different ones."""
        every = {path: {span or EVERYTHING for span, _ in calls} for path, calls in self.calls.items()}
        return {path: one.pop() if len(one) == 1 else ODD for path, one in every.items()}


def untold(small: Study) -> bool:
    """Whether masks of a model say more than the calls of its attention, as far as its small one shows."""
    if not small.interface:
        return False
    found, made = _looked(copy.deepcopy(small.fresh))
    return made if found is None else not found.told or _made_inside(small.model)


def spans(model_class: type[Any], config: Any, written: Mapping[str, Written] | None = None) -> dict[str, Span] | None:
    """What each module's attention may see by its mask, where it gets one; ``None`` if a model of this cannot run so.

    Args:
        model_class: the author's ``ForCausalLM`` class.
        config: a configuration of a small model.
        written: modules that attend as their author wrote it.
    """
    model = build(model_class, config, device="cpu")
    write_all(written or {}, model)
    found, _ = _looked(model)
    return None if found is None else found.by_module


def whole(subject: Subject, full: Study) -> dict[str, Span]:
    """The same for every layer of a subject, with its own windows, in a model that is narrow.

    Raises:
        RefusedError: it does not run so, and masks say what nothing else does.
    """
    layers = max((len(one) for one in full.model.modules() if isinstance(one, nn.ModuleList)), default=2)
    try:
        usual = not full.written
        built = full.model if usual else None
        config = shrink(subject.config, subject.model_class, layers=layers, interface=usual, built=built)
        known = spans(subject.model_class, config, full.written)
    except SubjectError:
        known = None
    if known is None:
        found = "masks hide what no keyword tells attention, and not all layers run in a small model to see which"
        help_ = "hand `sliding_window` to the interface by keyword"
        no = Refusal("attention", Reason.MASK_NOT_CAUSAL, found, type(full.model).__name__, help=help_)
        raise RefusedError(subject.name, (no,))
    return known


def lost_mask(small: Study, plan: Plan) -> Refusal | None:
    """A refusal if a module that runs on whole sequences, to which no masks are handed, gets one that hides more.

    That later tokens are hidden from it shows in every prompt; a window may be longer than any that is compared.
    """
    apart = [op.path for op in plan.ops if isinstance(op, History) and not op.eager]
    if not apart or not small.interface:
        return None
    model = copy.deepcopy(small.fresh)
    given: dict[str, list[torch.Tensor]] = {path: [] for path in apart}

    def note(path: str, args: Any, keywords: Any) -> None:
        given[path] += [one for one in tensors((args, keywords)) if one.ndim > 1]

    for path in apart:
        module = model.get_submodule(path)
        module.register_forward_pre_hook(lambda _, *every, path=path: note(path, *every), with_kwargs=True)
    found, _ = _run(model, FEW)
    more = {made.untyped_storage().data_ptr() for made, span in found.made if span != EVERYTHING}
    for path in apart:
        if any(one.untyped_storage().data_ptr() in more for one in given[path]):
            told = "it runs on whole sequences, and its mask hides more than later tokens"
            help_ = "hide tokens in the module itself, or call the attention interface"
            place = place_of(small.recording.calls[path])
            return Refusal("attention", Reason.MASK_NOT_CAUSAL, told, path, place, help=help_)
    return None


def _looked(model: Any) -> tuple[Spans | None, bool]:
    """Run a prompt and look at its masks; ``None`` if it cannot be run so, and whether masks were made all the same."""
    tokens = MANY
    found, whole = _run(copy.deepcopy(model), tokens)
    if not whole:
        tokens = FEW
        found, whole = _run(copy.deepcopy(model), tokens)
    if not whole and _without_window(model):
        found, whole = _run(copy.deepcopy(model), tokens)
    if whole:
        found.calls = united(list(_elsewhere(model, found, tokens)))
    return found if whole else None, bool(found.made)


def _elsewhere(model: Any, found: Spans, tokens: int) -> Iterator[tuple[int, Calls]]:
    """What calls show in a row of ``tokens``, in those of other kinds, and with other numbers in stored buffers.

    Each with the most tokens of rows of its kind.
    """
    kinds = kinds_of_rows(model)
    own = next(kind for kind in kinds if tokens in kind)
    yield own[-1], found.calls
    for kind in [kind for kind in kinds if kind is not own][:KINDS]:
        other, ran = _run(copy.deepcopy(model), kind[0], thin=True)
        if ran:
            yield kind[-1], other.calls
    for changed in with_other_buffers(model) if found.made else ():
        other, ran = _run(changed, tokens, thin=True)
        if ran:
            yield own[-1], other.calls


def _without_window(model: nn.Module) -> bool:
    """Give configurations that say there is no window one that reaches everywhere; whether there were any.

    transformers makes no mask with a window where none is said, and fails, though no layer may need it: a server takes
    the number away where windows are not in use.
    """
    configs = {id(one): one for module in model.modules() if (one := getattr(module, "config", None)) is not None}
    none = [one for one in configs.values() if getattr(one, WINDOW, 0) is None]
    for one in none:
        setattr(one, WINDOW, 2 * FARTHEST)
    return bool(none)


def _run(model: Any, tokens: int, *, thin: bool = False) -> tuple[Spans, bool]:
    """What was seen of a prompt, and whether it ran to its end; if ``thin`` without computing attention."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    found = Spans()
    paths = {id(module): name for name, module in model.named_modules()}

    def keep(_: nn.Module, *given: Any) -> None:
        found.kept |= {one.untyped_storage().data_ptr() for one in tensors(given)}

    def make(*args: Any, **keywords: Any) -> torch.Tensor | None:
        mask: torch.Tensor | None = torch.zeros(1, 1, 1, 1).expand(1, 1, tokens, tokens)
        if tokens <= LARGE:
            mask = ALL_MASK_ATTENTION_FUNCTIONS["eager"](*args, **keywords)
        if mask is None:
            return None  # it would hide nothing
        function, size = keywords.get("mask_function"), keywords.get("local_size")
        found.made.append((mask, EVERYTHING if function is None else span_of(function, tokens, size)))
        return mask

    def attend(module: nn.Module, *tensors: Any, **keywords: Any) -> tuple[torch.Tensor, None]:
        mask = tensors[3] if len(tensors) > 3 else keywords.pop("attention_mask", None)
        entry = (_known(found, mask), keywords.get("sliding_window"))
        found.calls.setdefault(paths[id(module)], []).append(entry)
        query, _, value = tensors[:3]
        empty = value.new_zeros(*query.shape[:3], value.shape[-1]).transpose(1, 2)
        return empty if thin else causal(module, *tensors[:3], **keywords), None

    as_written = [module for module in model.modules() if getattr(module, WRITTEN, False)]
    hooks = [module.register_forward_pre_hook(keep, with_kwargs=True) for module in as_written]
    try:
        with torch.no_grad(), attending(model, NAME, attend, make):
            model(**prompt(model, tokens))
    except AUTHOR_ERRORS:
        return found, False
    finally:
        for hook in hooks:
            hook.remove()
    return found, True


def _known(found: Spans, mask: Any) -> Span | None:
    """The span of a mask: of the one made that it is or is cut from, else of those that look like it."""
    if not isinstance(mask, torch.Tensor):
        return None
    held = mask.untyped_storage().data_ptr()
    same = [span for made, span in found.made if made.untyped_storage().data_ptr() == held]
    if not same:
        same = [span for made, span in found.made if torch.equal(_hidden(made), _hidden(mask))]
    return same[0] if len(set(same)) == 1 else ODD


def _hidden(mask: torch.Tensor) -> torch.Tensor:
    """What a mask hides, ``[queries, keys]``, of the first head of the first prompt."""
    first = mask.reshape(-1, *mask.shape[-2:])[0]
    return ~first if first.dtype is torch.bool else first < -1


def _made_inside(model: nn.Module) -> bool:
    """Whether layers make masks, so that other layers may make others."""
    layers = {type(m) for one in model.modules() if isinstance(one, nn.ModuleList) for m in one.modules()}
    for cls in layers:
        code = forward_code(cls)  # type: ignore[arg-type]
        names = getattr(inspect.unwrap(cls.forward), "__globals__", {})
        if code and any(getattr(names.get(name), "__module__", None) == MAKERS for name in code.co_names):
            return True
    return False
