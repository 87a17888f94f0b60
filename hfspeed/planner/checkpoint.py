"""What the names on disk mean in the author's state dict, and whether they fill it exactly."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from hfspeed.errors import CheckpointError
from hfspeed.planner.build import build
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

    Raises (from the function returned):
        UnknownTensorError: nobody knows the name.
        CheckpointError: transformers would compute the tensor from others.
    """
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

    names = dict.fromkeys(model.state_dict() if state_names is None else state_names, True)
    declared = getattr(type(model), "_checkpoint_conversion_mapping", None) or None
    mapping = get_model_conversion_mapping(model, key_mapping=declared)
    renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
    converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
    prefix = model.base_model_prefix or None
    ignored = ignorable(model)
    subject = type(model).__name__

    def resolve(name: str) -> str | None:
        renamed, converter = rename_source_key(name, renamings, converters, prefix, names)
        if renamed in names and converter is not None:
            raise CheckpointError(
                f"{subject}: {name} is converted on loading ({converter} -> {renamed}), which hfspeed does not do; "
                "load the checkpoint with transformers and save_pretrained(..., save_original_format=False)"
            )
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
    filled: dict[str, str] = {}
    faults: list[str] = []
    extra: list[str] = []
    for name in sorted(tensors):
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
    missing = [name for name in _missing(model, set(filled.values())) if not quantised(name)]
    faults += _told("missing", missing)
    faults += _misshapen(model, filled, tensors, quantised)
    if faults:
        raise CheckpointError(
            f"{folder} does not fill {model_class.__name__}: {'; '.join(faults)}; check that config.json and the "
            "weights belong together and that the download is complete"
        )
    return filled


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
    model: Any, filled: Mapping[str, str], tensors: Mapping[str, Stored], quantised: Callable[[str], bool]
) -> list[str]:
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    return [
        f"{name} in {tensors[name].file.name} is {list(tensors[name].shape)}, the model's is {list(shapes[target])}"
        for name, target in filled.items()
        if tensors[name].shape != shapes[target] and not quantised(target)
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
