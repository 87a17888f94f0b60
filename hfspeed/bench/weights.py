"""Random weights for a model that is only a configuration, written so that every arm loads the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SCALE = 0.02
"""Standard deviation of matrices, as models are initialised; vectors that scale are one, others zero."""


def write(folder: Path, seed: int = 0) -> None:
    """Write ``model.safetensors`` beside the ``config.json`` of ``folder``, by its author's names.

    vLLM's own dummy weights depend on how a layer is stored, so merged and single projections would be different
    models, and their tokens could not be compared.

    Raises:
        SubjectError: the model cannot be found or built.
    """
    import torch
    from safetensors.torch import save_file

    from hfspeed.planner.build import build
    from hfspeed.planner.load import load

    subject = load(str(folder))
    dtype = getattr(subject.config, "dtype", None) or torch.bfloat16
    model = build(subject.model_class, subject.config)
    draw = torch.Generator().manual_seed(seed)
    written: dict[str, Any] = {}
    seen: dict[int, str] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        if id(value) not in seen:  # tied tensors are written once
            seen[id(value)] = name
            written[name] = _random(torch, name, tuple(value.shape), draw).to(dtype)
    save_file(written, folder / "model.safetensors", metadata={"format": "pt"})


def _random(torch: Any, name: str, shape: tuple[int, ...], draw: Any) -> Any:
    if len(shape) < 2:
        return torch.zeros(shape) if name.endswith("bias") else torch.ones(shape)
    return torch.empty(shape).normal_(0.0, SCALE, generator=draw)
