"""The token table and the output projection, split over the vocabulary."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

from hfspeed.plan import Embed, Head, Plan
from hfspeed.plan.places import ROWS
from hfspeed.vllm.site import Site


class ScaledEmbedding(VocabParallelEmbedding):
    """A token table whose rows are multiplied by a constant, rounded to the table's dtype."""

    def __init__(self, *settings: Any, scale: float, **more: Any) -> None:
        super().__init__(*settings, **more)
        self.row_scale = torch.tensor(scale, dtype=self.params_dtype).item()

    def forward(self, input_: torch.Tensor) -> torch.Tensor:
        """``[tokens]`` to ``[tokens, size]``."""
        out: torch.Tensor = super().forward(input_)
        return out * self.row_scale


def embed(op: Embed, site: Site) -> None:
    """The token table; scaled rows where the author's table scales them."""
    settings = _common(op.path, site)
    if op.scale == 1.0:
        site.put(op.path, VocabParallelEmbedding(op.vocab, op.size, **settings))
    else:
        site.put(op.path, ScaledEmbedding(op.vocab, op.size, scale=op.scale, **settings))


def head(op: Head, site: Site) -> None:
    """The output projection; `hfspeed.vllm.logits` calls it."""
    site.put(op.path, ParallelLMHead(op.vocab, op.size, bias=op.bias, **_common(op.path, site)))


def _common(path: str, site: Site) -> dict[str, Any]:
    """Rows are filled up until the ranks divide them: vLLM's own filling is for powers of two alone."""
    filled = math.lcm(ROWS, site.ranks)
    return {"quant_config": site.quant_config, "prefix": site.prefix(path), "padding_size": filled}


def tie(plan: Plan, root: nn.Module) -> None:
    """Give the output projection the token table's weight, where the author ties them and both are here.

    A last stage without the table keeps a weight of its own, which the table's tensor fills.
    """
    ops = {op.path: op for op in plan.ops}
    for one in plan.ties:
        source, target = one.source.rpartition(".")[0], one.target.rpartition(".")[0]
        if isinstance(ops.get(source), Head) and isinstance(ops.get(target), Embed):
            projection, table = root.get_submodule(source), root.get_submodule(target)
            if isinstance(projection, ParallelLMHead) and isinstance(table, VocabParallelEmbedding):
                above, _, name = source.rpartition(".")
                setattr(root.get_submodule(above), name, projection.tie_weights(table))
