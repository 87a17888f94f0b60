"""A plan of styles applied to one rank's copy of a model, module by module, as transformers applies it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torch import nn

from hfspeed.plan.styles import style_of
from hfspeed.reference.ranks import Group
from hfspeed.reference.styles.experts import CutExperts, Router, SentTokens, Shared, WholeExperts
from hfspeed.reference.styles.linear import Alike, Column, Latent, PackedRow, Row, Summed
from hfspeed.reference.styles.rank import Rank, StyleError, copied, replace_forward

__all__ = ["STYLES", "StyleError", "Styled", "split"]

Styled = Rank


class Style(Protocol):
    """What one style does to a parameter, and to the forward of a module."""

    def shard(self, rank: Rank, module: nn.Module, path: str, name: str) -> None:
        """Keep this rank's piece of one parameter."""

    def install(self, rank: Rank, module: nn.Module, path: str) -> None:
        """Change the module's forward."""


STYLES: Mapping[str, Style] = {
    "colwise": Column(),
    "colwise_gather_output": Column(gather=True),
    "colwise_rep": Column(gather=True),
    "packed_colwise": Column(packed=True),
    "rowwise": Row(),
    "rowwise_split_input": Row(whole_input=True),
    "rowwise_rep": Row(whole_input=True),
    "packed_rowwise": PackedRow(),
    "embedding_rowwise": Row(whole_input=True),
    "replicated_with_grad_allreduce": Alike(),
    "mla_kv_a_proj": Latent(),
    "all_reduce": Summed(),
    "moe_tp_experts": CutExperts(),
    "moe_identity_expert": Shared(),
    "grouped_gemm": WholeExperts(),
    "ep_router": Router(),
    "ep_dispatch_experts": SentTokens(),
}
"""Every style of transformers but those of sequences and of one kernel, which no plan that it ships uses."""
TAKES_PIECES = (Column, Row, CutExperts, SentTokens)
"""Styles whose forward takes the pieces of the module's own parameters as they are."""


def split(
    model: nn.Module, plan: Mapping[str, str], group: Group, *, train: bool = False, under: str = "", config: Any = None
) -> Rank:
    """One rank of ``model``.

    Args:
        model: a model or a module of one.
        plan: styles by full name.
        group: how the rank meets the others.
        train: parameters want gradients.
        under: the path of ``model``, if it is only a part.
        config: the text model's configuration, if ``model`` has none.

    Raises:
        StyleError: transformers would not apply it, or knows no such style.
    """
    own = getattr(model, "config", None)
    rank = Rank(copied(model, train=train), group, config=config or (own.get_text_config() if own else None))
    if unknown := sorted({style for style in plan.values() if style not in STYLES}):
        raise StyleError(f"{', '.join(map(repr, unknown))} is no style that can be simulated")
    for inner, module in list(rank.root.named_modules()):
        path = ".".join(part for part in (under, inner) if part)
        for name, value in list(module._parameters.items()):
            style = style_of(f"{path}.{name}" if path else name, plan, parameter=True)
            if style is not None and value is not None:
                STYLES[style].shard(rank, module, path, name)
        style = style_of(path, plan, parameter=False)
        if style is not None:
            STYLES[style].install(rank, module, path)
        if not isinstance(STYLES.get(style or ""), TAKES_PIECES):
            _stop(rank, module, path)
    return rank


def _stop(rank: Rank, module: nn.Module, path: str) -> None:
    """Its own forward cannot read distributed parameters beside plain values."""
    pieces = [name for name in module._parameters if f"{path}.{name}" in rank.cut]
    if not pieces:
        return

    def stopped(*_: Any, **__: Any) -> Any:
        raise StyleError(f"`{path}.{pieces[0]}` is distributed, but no style of `{path}` lets its forward read it")

    replace_forward(module, stopped)
