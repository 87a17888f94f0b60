"""What the names on disk mean in the author's state dict, and whether they fill it exactly."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from hfspeed.errors import CheckpointError
from hfspeed.planner.build import build
from hfspeed.planner.conversion import Conversion, Part
from hfspeed.planner.safetensors import Stored, stored

SHOWN = 10
"""Names listed in an error; a checkpoint of another model would list thousands."""
MOVED = {"rotary_emb.inv_freq": r"rotary_emb\.inv_freq$", "position_ids": r"(^|\.)position_ids$"}
"""Buffers that older checkpoints hold under other paths; by how the model's own buffers end."""


class UnknownTensorError(CheckpointError):
    """A name on disk that the model has no place for, and that nobody declared ignorable."""


def resolver(model: Any, state_names: Iterable[str] | None = None) -> Callable[[str], str | None]:
    """How a name on disk reads in the state dict of ``model``, the author's own module (on meta will do).

    In this order: what transformers' renames for the class make of it, with the base model's prefix put on or taken
    off as needed; the name itself, likewise; ``None`` where the model declares the name ignorable.
    Feed names in sorted order, as transformers does: some of its renames depend on those before.

    A tensor that is a part of others is for `Conversion.assembled`, before its name is asked for here.

    Raises (from the function returned):
        UnknownTensorError: nobody knows the name.
    """
    from transformers.core_model_loading import rename_source_key

    conversion = Conversion(model)
    names = conversion.names if state_names is None else dict.fromkeys(state_names, True)
    prefix = conversion.prefix
    ignored = ignorable(model)
    subject = type(model).__name__

    def resolve(name: str) -> str | None:
        renamed, _ = rename_source_key(name, conversion.renamings, [], prefix, names)
        if renamed in names:
            return str(renamed)
        plain, _ = rename_source_key(name, [], [], prefix, names)
        if plain in names:
            return str(plain)
        if any(pattern.search(name) or pattern.search(renamed) for pattern in ignored):
            return None
        raise UnknownTensorError(f"{subject}: {name} is on disk, but the model has no such tensor")

    return resolve


def ignorable(model: Any) -> list[re.Pattern[str]]:
    """Names that may be on disk without a place in the model: declared by its classes, or buffers it computes."""
    state = set(model.state_dict())
    buffers = [name for name, _ in model.named_buffers()]
    declared = sorted(model._keys_to_ignore_on_load_unexpected or ())
    moved = [pattern for end, pattern in MOVED.items() if any(name.endswith(end) for name in buffers)]
    computed = [rf"^{re.escape(name)}$" for name in buffers if name not in state]
    return [re.compile(pattern) for pattern in (*declared, *moved, *computed)]


def check(folder: Path, model_class: type[Any], config: Any) -> dict[str, str]:
    """Whether the weights in ``folder`` fill the model exactly: name on disk -> name in the author's state dict.

    Quantised checkpoints hold other tensors in a linear's place; of them only names outside such modules are checked.

    Raises:
        CheckpointError: tensors that are missing, extra, misshapen or told twice; all of them in one message.
    """
    model = build(model_class, config)
    tensors = stored(folder)
    resolve = resolver(model)
    made, faults = _parts(model, tensors)
    filled = {name: part.target for name, part in made.items()}
    parts = frozenset(made)
    extra: list[str] = []
    for name in sorted(tensors.keys() - parts):
        try:
            target = resolve(name)
        except UnknownTensorError:
            extra.append(name)
            continue
        if target in filled.values():
            faults.append(f"{name} fills {target} a second time")
        elif target is not None:
            filled[name] = target
    quantised = _quantised(config, model, extra)
    faults += _told("extra", [name for name in extra if not quantised(name)])
    done = {*filled.values(), *(target for part in made.values() for target in part.targets)}
    missing = [name for name in _missing(model, done) if not quantised(name)]
    faults += _told("missing", missing)
    faults += _misshapen(model, filled, tensors, quantised, parts)
    if faults:
        raise CheckpointError(
            f"{folder} does not fill {model_class.__name__}: {'; '.join(faults)}; check that config.json and the "
            "weights belong together and that the download is complete"
        )
    return filled


def _parts(model: Any, tensors: Mapping[str, Stored]) -> tuple[dict[str, Part], list[str]]:
    """Tensors on disk that are parts of others; and which targets have not as many elements on disk as they should."""
    conversion = Conversion(model)
    found = {name: part for name in sorted(tensors) if (part := conversion.part(name)) is not None}
    elements: dict[str, int] = {}
    whole: dict[str, Part] = {}
    for name, part in found.items():
        elements[part.target] = elements.get(part.target, 0) + math.prod(tensors[name].shape)
        whole[part.target] = part
    wrong = [
        f"{target} is made of tensors that have {elements[target]} elements, the model's has {conversion.sizes[target]}"
        for target, part in whole.items()
        if len(part.converter.target_patterns) == 1 and elements[target] != conversion.sizes[target]
    ]
    return found, wrong[:SHOWN]


def ties(model: Any) -> dict[str, str]:
    """Names that are one tensor, by the model's declaration and its configuration: tied name -> the name kept."""
    return dict(model.all_tied_weights_keys)


def _missing(model: Any, filled: set[str]) -> list[str]:
    """Names of the state dict that nothing fills; a tie is filled from either end."""
    by_tensor: dict[int, set[str]] = {}
    state = model.state_dict(keep_vars=True)
    for name, tensor in state.items():
        by_tensor.setdefault(id(tensor), set()).add(name)
    waived = [re.compile(pattern) for pattern in model._keys_to_ignore_on_load_missing or ()]
    return [
        name
        for name, tensor in state.items()
        if not by_tensor[id(tensor)] & filled and not any(pattern.search(name) for pattern in waived)
    ]


def _misshapen(
    model: Any,
    filled: Mapping[str, str],
    tensors: Mapping[str, Stored],
    quantised: Callable[[str], bool],
    parts: Collection[str],
) -> list[str]:
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    return [
        f"{name} in {tensors[name].file.name} is {list(tensors[name].shape)}, the model's is {list(shapes[target])}"
        for name, target in filled.items()
        if tensors[name].shape != shapes[target] and not quantised(target) and name not in parts
    ][:SHOWN]


def _quantised(config: Any, model: Any, extra: list[str]) -> Callable[[str], bool]:
    """Whether a name belongs to a module whose weights are stored in another form."""
    paths = {path for path, _ in model.named_modules()}
    declared = getattr(config, "quantization_config", None) is not None
    packed = {name.rpartition(".")[0] for name in extra} & paths if declared else set()
    return lambda name: name.rpartition(".")[0] in packed


def _told(what: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return [f"{len(names)} {what}: {', '.join(names[:SHOWN])}{more}"]
