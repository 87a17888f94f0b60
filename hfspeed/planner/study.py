"""One model looked at: built, run once under the recorder, with a twin that has real buffers."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hfspeed.errors import RefusedError
from hfspeed.graph.nodes import is_attention
from hfspeed.graph.positions import forward_code
from hfspeed.graph.record import Recording, record
from hfspeed.planner.build import build, randomise
from hfspeed.planner.import_file import AUTHOR_ERRORS, told
from hfspeed.refusal import Place, Reason, Refusal

TOKENS = 9
"""Prompt length of the recorded run: no size of a model, so that shapes cannot coincide."""


@dataclass
class Study:
    """What the planner knows of one build of a model.

    Attributes:
        model: the author's ``ForCausalLM``; on meta when ``real`` is false.
        twin: the same with real buffers, so that single modules can be run.
        recording: one run of ``model``.
        real: parameters have values.
    """

    model: Any
    twin: Any
    recording: Recording
    real: bool

    @property
    def windows(self) -> frozenset[int]:
        """All sliding windows handed to attention."""
        found = set()
        for call in self.recording.calls.values():
            for node in call.graph.nodes:
                window = node.kwargs.get("sliding_window") if is_attention(node) else None
                if isinstance(window, int):
                    found.add(window)
        return frozenset(found)


def study(model_class: type[Any], config: Any, *, real: bool, seed: int = 0) -> Study:
    """Build and record a model.

    Args:
        model_class: the author's ``ForCausalLM`` class.
        config: its configuration.
        real: build it on the CPU in float64 with random weights; else on meta at any size.
        seed: of the random weights.

    Raises:
        RefusedError: the forward does not run alone.
    """
    if real:
        model = build(model_class, config, device="cpu", dtype=torch.float64)
        randomise(model, seed)
        twin = model
    else:
        model = build(model_class, config, device="meta")
        twin = build(model_class, config, device="meta", buffers=True)
    try:
        recording = _run(model, 0, real)
        if recording.reads and not real:
            _steady(model, recording, _run(model, _longest(config), real))
    except AUTHOR_ERRORS as error:
        raise RefusedError(model_class.__name__, (_cannot_run(model_class, error),)) from error
    return Study(model, twin, recording, real)


def _run(model: nn.Module, start: int, real: bool) -> Recording:
    """A recorded prompt whose positions begin at ``start``; on meta the forward may still read them."""
    given = prompt(model, TOKENS)
    rows = int(model.get_input_embeddings().weight.shape[0])  # type: ignore[operator]
    positions = torch.arange(TOKENS)[None]
    known = {"input_ids": (positions * 7 + 3) % rows, "position_ids": positions + start}
    values = {} if real else {given[n]: v for n, v in known.items() if n in given}
    return record(model, given, keep_values=real, values=values)


def _longest(config: Any) -> int:
    """A first position so late that whatever depends on length has happened."""
    text = config.get_text_config(decoder=True)
    return max(int(getattr(text, "max_position_embeddings", None) or 0), 1 << 17) - TOKENS


def _steady(model: nn.Module, early: Recording, late: Recording) -> None:
    """Refuse a forward whose decisions depend on how long its longest sequence is.

    Several sequences run side by side, so such a decision would be taken for all of them at once.
    """
    if early.reads == late.reads:
        return
    pairs = zip(early.reads, late.reads, strict=False)
    path = next((one[0] for one, other in pairs if one != other), "")
    code = forward_code(type(model.get_submodule(path)))  # type: ignore[arg-type]
    place = Place(code.co_filename, code.co_firstlineno) if code else None
    found = "the forward reads positions and behaves otherwise for long sequences"
    help_ = "make it a function of each token's own position"
    refusal = Refusal("model", Reason.VALUE_VARIES, found, path, place, help=help_)
    raise RefusedError(type(model).__name__, (refusal,))


def prompt(model: nn.Module, tokens: int) -> dict[str, Any]:
    """Arguments of one prompt of ``tokens`` tokens, as far as the author's forward takes them."""
    table = model.get_input_embeddings().weight  # type: ignore[operator]
    positions = torch.arange(tokens, device=table.device)[None]
    wanted = {
        "input_ids": (positions * 7 + 3) % table.shape[0],
        "position_ids": positions,
        "use_cache": False,
    }
    taken = inspect.signature(model.forward).parameters
    if any(entry.kind is inspect.Parameter.VAR_KEYWORD for entry in taken.values()):
        return wanted
    return {name: value for name, value in wanted.items() if name in taken}


def _cannot_run(model_class: type[Any], error: BaseException) -> Refusal:
    code = forward_code(model_class)  # type: ignore[arg-type]
    place = Place(code.co_filename, code.co_firstlineno) if code else None
    found = f"the forward does not run on token ids alone: {told(error)}"
    return Refusal("model", Reason.CANNOT_RUN, found, model_class.__name__, place)
