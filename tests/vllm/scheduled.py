"""What vLLM tells layers with states about one step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch


def metadata(singles: list[int], pieces: list[tuple[int, int, bool]]) -> Any:
    """As vLLM's: pages of single tokens, then page, length and whether it goes on of each piece."""
    starts = [0]
    for _, tokens, _ in pieces:
        starts.append(starts[-1] + tokens)
    return SimpleNamespace(
        num_decodes=len(singles),
        num_decode_tokens=len(singles),
        num_prefills=len(pieces),
        state_indices_tensor_d=torch.tensor(singles, dtype=torch.int32).reshape(-1, 1),
        state_indices_tensor_p=torch.tensor([page for page, _, _ in pieces], dtype=torch.int32),
        query_start_loc_p=torch.tensor(starts, dtype=torch.int32),
        has_initial_states_p=torch.tensor([goes_on for _, _, goes_on in pieces]),
    )
