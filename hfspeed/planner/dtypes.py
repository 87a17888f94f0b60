"""In which dtype the author wants each part of a model."""

from __future__ import annotations

import re

import torch
from torch import nn


def dtype_of(root: nn.Module, name: str, dtype: torch.dtype) -> torch.dtype:
    """The dtype in which the author wants ``name``: some parts stay in float32 in half precision.

    transformers' rule: one list of names holds for both half precisions, another for float16 alone.
    """
    strict = set(getattr(root, "_keep_in_fp32_modules_strict", None) or ())
    loose = set(getattr(root, "_keep_in_fp32_modules", None) or ())
    wanted = strict | loose if dtype == torch.float16 else strict if dtype == torch.bfloat16 else set()
    matched = any(re.search(rf"(^|\.){pattern}($|\.)", name) for pattern in wanted)
    return torch.float32 if matched else dtype
