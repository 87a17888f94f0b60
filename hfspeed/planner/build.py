"""The author's ForCausalLM as a module: on meta at full size, or small and real; attention goes to hfspeed."""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from hfspeed.errors import SubjectError
from hfspeed.pattern.span import EVERYTHING, Span
from hfspeed.planner.blame import line_of
from hfspeed.planner.ends import settle_ends
from hfspeed.planner.filled import real_buffers, settle
from hfspeed.planner.import_file import AUTHOR_ERRORS, told, where
from hfspeed.planner.plan_forms import demand_plans
from hfspeed.planner.scripted import unscripted
from hfspeed.recurrences.written import WRITTEN

SPAN = "hfspeed_span"
"""The attribute of a module that says what its mask lets it see, where no keyword does."""
ABSURD = 1e4
"""No vector of a model is made with numbers as large as this."""
ATTENTION = "hfspeed"
"""The name under which transformers' attention interface knows us."""


def build(
    model_class: type[Any],
    config: Any,
    *,
    device: str = "meta",
    dtype: torch.dtype = torch.float32,
    buffers: bool = False,
    interface: bool = True,
) -> Any:
    """The author's module in eval mode, its attention dispatched to hfspeed; ``config`` itself is not touched.

    Without ``interface`` attention is computed as its author computes it where nobody asks for anything else.

    On ``"meta"`` no weight is allocated or initialised. With ``buffers`` the parameters are on meta, but the
    buffers (rotary frequencies, tables) are real: what the author's ``__init__`` and ``_init_weights`` compute.

    Raises:
        SubjectError: the author's code raises, or the model has no output projection.
    """
    register()
    unscripted(model_class)
    demand_plans(config)
    try:
        model = _instance(model_class, config, dtype, _hollow if buffers else torch.device, device, interface)
    except AUTHOR_ERRORS as error:
        file = Path(inspect.getfile(model_class))
        raise SubjectError(
            f"{where(error, file.parent) or file}: {model_class.__name__} cannot be built from its configuration: "
            f"{told(error)}; make config and code agree",
            line_of(error, file.parent),
        ) from error
    if device == "meta":
        _bring_to_meta(model)
    if buffers:
        settle(model)
    if not settle_ends(model):
        raise SubjectError(
            f"{inspect.getfile(model_class)}: {model_class.__name__} has no output projection "
            "(get_output_embeddings() is None, and no table of tokens is found); hfspeed plans causal language models"
        )
    return model.eval().requires_grad_(False)


def _bring_to_meta(model: nn.Module) -> None:
    """Leave no parameter where its author's code put it in spite of everything, as `torch.nn.utils.skip_init` does."""
    moved: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, one in module._parameters.items():
            if one is not None and not one.is_meta:
                fresh = nn.Parameter(one.detach().to("meta"), requires_grad=one.requires_grad)
                module._parameters[name] = moved.setdefault(id(one), fresh)


def register() -> None:
    """Make ``hfspeed`` an attention implementation that transformers accepts; safe to repeat."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(ATTENTION, dispatch)


def mark(spans: Mapping[str, Span], *models: nn.Module) -> None:
    """Write down at modules what their masks let them see, where attention is dispatched to us; see `dispatch`."""
    for model in models:
        for path, span in spans.items():
            setattr(model.get_submodule(path), SPAN, span)


def dispatch(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    **keywords: Any,
) -> tuple[torch.Tensor, None]:
    """What the author's attention calls: the module's own ``attn`` where a builder put one, else the recorded leaf.

    A scale that is no number but a tensor, as learned ones are, is multiplied into the query first.
    """
    scale = keywords.get("scaling")
    if isinstance(scale, torch.Tensor) and scale.ndim <= query.ndim and (scale.ndim == 0 or scale.shape[-1] == 1):
        query, keywords["scaling"] = (query * scale).to(query.dtype), 1.0
    attn: Any = getattr(module, "attn", None)
    if getattr(attn, "is_hfspeed_attention", False):
        return attn(query, key, value, attention_mask, **keywords)
    from hfspeed.graph.aside import KNOWN, beside, is_aside
    from hfspeed.graph.attend import attend

    if attention_mask is None and is_aside(module, query, key) and acting(keywords) <= KNOWN:
        return beside(module, query, key, value, **keywords)
    span: Span | None = getattr(module, SPAN, None)
    if span is not None and span != EVERYTHING:
        told = keywords.get("sliding_window")
        odd = span.odd or told not in (None, span.window)  # two spans, and nobody knows which of them is meant
        keywords |= {"by_mask": True, "chunk": span.chunk, "odd": odd, "sliding_window": span.window}
    return attend(module, query, key, value, attention_mask, **keywords)


def acting(keywords: Mapping[str, Any]) -> set[str]:
    """The keywords that somebody gave a value; a dropout of nothing is none."""
    return {name for name, value in keywords.items() if value is not None and (name != "dropout" or value)}


@contextlib.contextmanager
def attending(
    model: nn.Module, name: str, attend: Callable[..., Any] = dispatch, make: Callable[..., Any] = lambda *_, **__: None
) -> Iterator[None]:
    """Let ``model`` ask for the attention called ``name``; for once that is ``attend``, with masks by ``make``."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    eager(model, name)
    attends = patch.dict(ALL_ATTENTION_FUNCTIONS._global_mapping, {name: attend})
    with attends, patch.dict(ALL_MASK_ATTENTION_FUNCTIONS._global_mapping, {name: make}):
        yield


def eager(model: nn.Module, name: str = "eager") -> None:
    """Let every module that asks its configuration for an attention use its author's own, or transformers' own.

    What attends as written always has its author's.
    """
    for module in (one for one in model.modules() if not getattr(one, WRITTEN, False)):
        config: Any = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation"):
            config._attn_implementation = name


def randomise(model: nn.Module, seed: int = 0) -> None:
    """Give every parameter random values, none of them neutral, so that a dropped piece changes the result.

    Matrices are normal with deviation 0.08, biases 0.05; other vectors (norm weights, scales) keep what their
    author initialised and get 0.1 of noise. Buffers stay, except correction biases, which choose experts.
    """
    source = torch.Generator().manual_seed(seed)

    def noise(like: torch.Tensor, deviation: float) -> torch.Tensor:
        drawn = torch.randn(like.shape, generator=source, dtype=torch.float64) * deviation
        return drawn.to(like.dtype)

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2:
                parameter.copy_(noise(parameter, 0.08))
            elif name.endswith("bias"):
                parameter.copy_(noise(parameter, 0.05))
            else:
                made = parameter.abs() < ABSURD  # not so if its author only asked for memory, which may hold anything
                parameter.copy_(torch.where(made, parameter, 0.0) + noise(parameter, 0.1))
        for name, buffer in model.named_buffers():
            if name.endswith("correction_bias"):
                buffer.copy_(noise(buffer, 0.3))


def _instance(
    model_class: type[Any], config: Any, dtype: torch.dtype, place: Callable[[str], Any], device: str, interface: bool
) -> Any:
    """Build with our attention; a class that looks its attention up in a table of its own gets its own default."""
    first: KeyError | ValueError | None = None
    for attention in (ATTENTION, None) if interface else (None,):
        own = copy.deepcopy(config)
        for part in _configs(own):
            part._attn_implementation = attention
            if hasattr(part, "_experts_implementation_internal"):
                part._experts_implementation_internal = "eager"  # what the author wrote, not a kernel of transformers'
        try:
            with place(device), _quiet():
                return model_class._from_config(own, dtype=dtype)
        except (KeyError, ValueError) as error:
            first = first or error
    assert first is not None
    raise first


def _configs(config: Any) -> Iterator[Any]:
    """``config`` and every configuration nested in it, declared as a sub-config or not."""
    yield config
    for value in list(vars(config).values()):
        if hasattr(value, "_attn_implementation_internal") and value is not config:
            yield from _configs(value)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The author's advice about training and downloads is not for our user."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


@contextlib.contextmanager
def _hollow(device: str) -> Iterator[None]:
    """Allocations without values land on ``device``, and so does every parameter; what is computed is real: buffers."""
    original = nn.Module.register_parameter

    def register_parameter(module: nn.Module, name: str, param: nn.Parameter | None) -> None:
        if param is not None and param.device.type != device:
            param = nn.Parameter(param.to(device), requires_grad=param.requires_grad)
        original(module, name, param)

    with _EmptyOn(device), real_buffers():
        setattr(nn.Module, "register_parameter", register_parameter)  # noqa: B010  mypy knows no other way
        try:
            yield
        finally:
            setattr(nn.Module, "register_parameter", original)  # noqa: B010


class _EmptyOn(TorchFunctionMode):
    """``torch.empty`` that names no device allocates on this one."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call ``func``, on this device if it only allocates."""
        kwargs = dict(kwargs or {})
        if func is torch.empty and kwargs.get("device") is None:
            kwargs["device"] = self.device
        return func(*args, **kwargs)


def size_of(model: nn.Module) -> int:
    """Elements of all parameters, tied ones once, and of all buffers."""
    return sum(math.prod(tensor.shape) for tensor in (*model.parameters(), *model.buffers()))
