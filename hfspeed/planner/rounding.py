"""Code that rounds what it computes of tokens: what lies near a step goes either way, whoever runs it."""

from __future__ import annotations

from typing import Final

from torch import fx, nn

from hfspeed.graph.nodes import function_name
from hfspeed.graph.tensors import tensors
from hfspeed.pattern.replacement import place_of
from hfspeed.planner.study import TOKENS, Study
from hfspeed.planner.ways import kind, line
from hfspeed.refusal import Reason, Refusal

ROUNDS: Final = frozenset({
    "fake_quantize_per_channel_affine", "fake_quantize_per_tensor_affine", "round", "round_",
})  # fmt: skip
HELP: Final = "compare answers with a tolerance of some steps; one run of transformers' differs from another as well"


def rounds(small: Study) -> tuple[Refusal, ...]:
    """What to tell of each class that rounds activations: it is served as written, and close answers may differ.

    In float64 nothing lies near enough to a step, so a proof says nothing about it.
    """
    found: dict[type[nn.Module], Refusal] = {}
    for path, call in small.recording.calls.items():
        node = next((node for node in call.graph.nodes if _rounds(node)), None)
        if node is not None and kind(call.cls) not in found:
            text = f"`{function_name(node)}` rounds what is computed of tokens; sums in another order step otherwise"
            place = line(node) or place_of(call, node)
            found[kind(call.cls)] = Refusal("numbers", Reason.NUMBERS_DIFFER, text, path, place, help=HELP)
    return tuple(found.values())


def _rounds(node: fx.Node) -> bool:
    if function_name(node) not in ROUNDS:
        return False
    given = (one for n in node.all_input_nodes for one in tensors(n.meta.get("value")))
    return any(one.is_floating_point() and TOKENS in one.shape for one in given)
