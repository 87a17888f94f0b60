"""A module that calls the attention interface gets paged attention; every keyword it hands over is accounted for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch import fx, nn

from hfspeed.example import Example
from hfspeed.graph.flow import origins
from hfspeed.graph.nodes import function_name, is_attention, value_of
from hfspeed.graph.record import Call
from hfspeed.pattern.measure import DECODER, Measured
from hfspeed.pattern.replacement import Replacement
from hfspeed.plan import Attention
from hfspeed.plan.keywords import FALSE, HARMLESS
from hfspeed.refusal import Reason

_SHAPES: Final = """
q = self.q(x).view(1, 6, -1, 8).transpose(1, 2)
k = self.k(x).view(1, 6, -1, 8).transpose(1, 2)
v = self.v(x).view(1, 6, -1, 8).transpose(1, 2)
"""
_BY_MASK: Final = frozenset({"by_mask", "chunk", "odd"})
"""What is added to a call where the author's mask says more than its keywords."""
_AS_IT_IS: Final = frozenset({
    "contiguous", "detach", "expand", "flatten", "float", "reshape", "squeeze", "to", "type_as", "unsqueeze", "view",
})  # fmt: skip
"""Functions behind which sinks are the same numbers in the same order."""
_WIDTHS: Final = {"q": 32, "k": 16, "v": 16}
DISTANCE = (
    "let it depend on the distance of tokens alone, by numbers of the configuration; where masks are made, positions "
    "that do not count up one by one are taken for those of several sequences"
)


class InterfaceAttention(Replacement):
    """The interface is called causally, with values known when the model is built; each call has a cache of its own."""

    name = "attention"

    fuses = (
        Example(_SHAPES + "return attention(self, q, k, v, None, scaling=0.3)[0]", widths=_WIDTHS),
        Example(
            _SHAPES
            + "return attention(self, q, k, v, None, sliding_window=4, softcap=2.0, s_aux=self.s, dropout=0.0)[0]",
            widths=_WIDTHS,
            children={"s": "nn.Parameter(torch.zeros(4))"},
        ),
        Example(
            _SHAPES + "return attention(self, q, k, v, None)[0] + attention(self, q, k, k, None)[0]",
            widths=_WIDTHS,
        ),
        Example(
            _SHAPES + "return attention(self, q, k, v, None, s_aux=self.s.float().view(1, -1, 1, 1))[0]",
            widths=_WIDTHS,
            children={"s": "nn.Parameter(torch.zeros(4))"},
        ),
    )
    refuses = (
        Example(
            _SHAPES + "return attention(self, q, k, v, None, position_bias=x)[0]",
            widths=_WIDTHS,
            reason=Reason.KEYWORD_NOT_CONSUMED,
        ),
        Example(
            _SHAPES + "return attention(self, q, k, v, torch.zeros(3, 3))[0]",
            widths=_WIDTHS,
            reason=Reason.MASK_NOT_CAUSAL,
        ),
        Example(
            _SHAPES + "return attention(self, q, k, v, None, s_aux=self.s * 2.0)[0]",
            widths=_WIDTHS,
            children={"s": "nn.Parameter(torch.zeros(4))"},
            reason=Reason.VALUE_VARIES,
        ),
        Example(
            _SHAPES + "return attention(self, q, k, v, None, s_aux=self.s.view(2, 1).expand(2, 2).flatten())[0]",
            widths=_WIDTHS,
            children={"s": "nn.Parameter(torch.zeros(2))"},
            reason=Reason.VALUE_VARIES,
        ),
        Example(
            _SHAPES + "return attention(self, q, k, v, None, is_causal=False)[0]",
            widths=_WIDTHS,
            reason=Reason.MASK_NOT_CAUSAL,
        ),
        Example(
            "assert self.is_causal is False" + _SHAPES + "return attention(self, q, k, v, None)[0]",
            widths=_WIDTHS,
            children={"is_causal": "False"},
            reason=Reason.MASK_NOT_CAUSAL,
        ),
        Example(
            _SHAPES + "return attention(self, q, k, v, None)[0] + attention(self, q, k, k, None, scaling=0.5)[0]",
            widths=_WIDTHS,
            reason=Reason.CALLED_TWICE_INTERFACE,
        ),
    )

    def sees(self, call: Call) -> bool:
        return any(is_attention(node) for node in call.graph.nodes)

    def plan(self, call: Call, twin: nn.Module, later: Sequence[Call] = ()) -> Attention:
        first, *others = [node for node in call.graph.nodes if is_attention(node)]
        op = self._one(call, first)
        if first.meta.get("measured") is not None:  # the later calls run the same text
            return replace(op, calls=1 + len(later))
        every = [(call, node) for node in others]
        every += [(one, node) for one in later for node in one.graph.nodes if is_attention(node)]
        for one, node in every:
            if self._one(one, node) != op:
                found = "attention is called more than once a step, with different numbers"
                self.refuse(one, Reason.CALLED_TWICE_INTERFACE, found, node)
        return replace(op, calls=1 + len(every))

    def _one(self, call: Call, node: fx.Node) -> Attention:
        """The op of one call of the interface."""
        query, key, value = (value_of(a) for a in node.args[1:4] if isinstance(a, fx.Node))
        self._causal(call, node, query, key)
        measured: Measured | None = node.meta.get("measured")
        known = self._known(call, node) if measured is None else measured.keywords()
        return Attention(
            call.path,
            heads=int(query.shape[1]),
            kv_heads=int(key.shape[1]),
            head_size=int(query.shape[3]),
            value_size=int(value.shape[3]),
            scale=float(known.get("scaling") or query.shape[3] ** -0.5),
            window=known.get("sliding_window"),
            softcap=known.get("softcap"),
            sinks=self._sinks(call, node),
            alibi=known.get("alibi"),
            measured=measured is not None,
            chunk=known.get("chunk"),
            by_mask=bool(known.get("by_mask")),
        )

    def _causal(self, call: Call, node: fx.Node, query: torch.Tensor, key: torch.Tensor) -> None:
        keywords = dict(node.kwargs)
        mask = node.args[4] if len(node.args) > 4 else keywords.get("attention_mask")
        if mask is not None:
            found = "a mask of the author's own is handed to attention"
            self.refuse(call, Reason.MASK_NOT_CAUSAL, found, node, "build masks with transformers' helpers")
        if keywords.get("odd"):
            found = "a mask made with transformers' functions is neither causal, nor a window, nor in chunks"
            self.refuse(call, Reason.MASK_NOT_CAUSAL, found, node, DISTANCE)
        causal = keywords.get("is_causal")
        if causal is None:  # transformers asks the module then
            causal = getattr(call.module, "is_causal", True) or node.meta.get("masked", False)
        if causal is False or query.shape[2] != key.shape[2]:
            self.refuse(call, Reason.MASK_NOT_CAUSAL, "attention is not causal", node, DECODER)

    def _known(self, call: Call, node: fx.Node) -> dict[str, Any]:
        """Keywords that act, as numbers; refuses any that would be dropped."""
        known: dict[str, Any] = {}
        for name, value in node.kwargs.items():
            if name in {"s_aux", "is_causal", "attention_mask"} or name in HARMLESS or value is None:
                continue
            if name in FALSE and value is False:
                continue
            if name == "dropout" and not isinstance(value, fx.Node) and not value:
                continue
            if name in _BY_MASK:
                known[name] = value
                continue
            if name not in {"scaling", "sliding_window", "softcap"}:
                found = f"`{name}` is handed to attention, and nothing would consume it"
                self.refuse(call, Reason.KEYWORD_NOT_CONSUMED, found, node)
            if isinstance(value, fx.Node | bool):
                found = f"`{name}` is no plain number when the model is built"
                self.refuse(call, Reason.VALUE_VARIES, found, node, "make it a number in `__init__`")
            known[name] = value
        return known

    def _sinks(self, call: Call, node: fx.Node) -> str | None:
        at = sinks = node.kwargs.get("s_aux")
        if sinks is None:
            return None
        while isinstance(at, fx.Node) and function_name(at) in _AS_IT_IS and isinstance(at.args[0], fx.Node):
            at = at.args[0]
        prefix = f"{call.path}."
        if not isinstance(at, fx.Node) or at.op != "get_attr" or not str(at.target).startswith(prefix):
            held = origins(sinks, lambda n: n.op == "get_attr") if isinstance(sinks, fx.Node) else ()
            computed = "is computed, and kernels have a parameter as it is in a checkpoint"
            found = f"`s_aux` {computed if held else 'is no parameter of the module'}"
            self.refuse(call, Reason.VALUE_VARIES, found, node, "hand over a parameter of the module, as it is")
        if (count := value_of(at).numel()) != (heads := value_of(node.args[1]).shape[1]):  # type: ignore[arg-type]
            found = f"`s_aux` is made of {count} numbers for {heads} heads"
            self.refuse(call, Reason.VALUE_VARIES, found, node, "hand over a parameter with a number for each head")
        return str(at.target).removeprefix(prefix)
