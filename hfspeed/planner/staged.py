"""The pipeline plan of a configuration: the children that the one value goes through, with what they read and give."""

from __future__ import annotations

import inspect
from typing import Any

from torch import fx

from hfspeed.graph.flow import behind
from hfspeed.graph.record import Call
from hfspeed.plan import Plan
from hfspeed.plan.styles import Stage
from hfspeed.planner.study import Study
from hfspeed.refusal import Reason, Refusal

TOKENS, EMBEDDED = "input_ids", "inputs_embeds"
MASK = "attention_mask"


def stage_plan(full: Study, plan: Plan) -> tuple[dict[str, Stage], tuple[Refusal, ...]]:
    """The plan, or why there is none."""
    base, stages = plan.wrapper.base, plan.stages
    if stages is None:
        return {}, tuple(r for r in plan.refusals if r.wanted == "stages")
    taken = inspect.signature(full.model.get_submodule(base).forward).parameters
    if EMBEDDED not in taken:
        why = f"the base model takes no `{EMBEDDED}`, in which a later stage is given what the one before made"
        return {}, (Refusal("pp plan", Reason.NO_DECODER_LAYERS, why, base),)
    if base and not stages.layers.startswith(f"{base}."):
        return {}, (Refusal("pp plan", Reason.NO_DECODER_LAYERS, "the layers lie outside the base model", base),)
    start = len(base) + 1 if base else 0
    before, after = _around(full, plan)
    carried = stages.carried
    layer = full.recording.calls[f"{stages.layers}.0"]
    found: dict[str, Stage] = {}
    for path in before:
        found[path[start:]] = ([EMBEDDED] if found else [TOKENS], [EMBEDDED])
    found[stages.layers[start:]] = (_inputs(layer, carried), [carried])
    found |= {path[start:]: ([carried], [carried]) for path in after}
    return found, ()


def _around(full: Study, plan: Plan) -> tuple[list[str], list[str]]:
    """Children that the value goes through before the first layer and behind the last, in order."""
    assert plan.stages is not None
    decoder: Call = full.recording.calls[plan.stages.decoder]
    nodes = list(decoder.graph.nodes)
    layers = [n for n in nodes if n.op == "call_module" and str(n.target).startswith(f"{plan.stages.layers}.")]
    first, last = nodes.index(layers[0]), nodes.index(layers[-1])
    feeding = behind(*layers[0].all_input_nodes[:1])
    table = plan.stages.first[0]
    before = [str(n.target) for n in nodes[:first] if n.op == "call_module" and n in feeding and _on_way(n, table)]
    ends = behind(*(n for n in nodes if n.op == "output"))
    after = [str(n.target) for n in nodes[last + 1 :] if n.op == "call_module" and n in ends]
    return before or [table], after


def _on_way(node: fx.Node, table: str) -> bool:
    """Whether the token table's rows go through the node."""
    return any(str(n.target) == table for n in behind(node) if n.op == "call_module")


def _inputs(layer: Call, carried: str) -> list[str]:
    """What a layer is given: the value, and the mask where it takes one."""
    names: Any = inspect.signature(layer.module.forward).parameters
    return [carried, *([MASK] if MASK in names else [])]
