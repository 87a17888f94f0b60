"""How fast the machine could be at best: its speed at reading weights and at multiplying, against what a model needs.

Started as ``python -m hfspeed.bench.bounds OUT``; it answers as an arm's process does (`hfspeed.bench.arm`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from hfspeed.bench.arm import Answer, answering
from hfspeed.bench.arms import Arm

if TYPE_CHECKING:
    import torch

    from hfspeed.plan.holdings import Holding
    from hfspeed.plan.plan import Plan

BOUNDS = Arm("bounds", "what the machine allows", "", "", {"HFSPEED": "off"})
"""Its process, as `Worker` starts it."""
READ, SIDE, TIMES = 1 << 29, 2048, 3
"""Bytes that are read at once, far more than caches hold; the side of the matrices that are multiplied; how often."""


@dataclass(frozen=True)
class Needs:
    """What a model cannot do with less.

    Attributes:
        read: bytes of weights that one step of decoding reads, whatever it computes.
        multiply: floating-point operations that one token of a prompt takes in products with weights.
    """

    read: float
    multiply: float


def needs(plan: Plan, held: Holding, *, item: int, prompts: int, input_len: int) -> Needs:
    """What weights alone ask for; attention, norms and messages come on top, so that no bound is too low.

    Args:
        plan: of the model.
        held: all that it has, on one rank.
        item: bytes of an element of a weight.
        prompts: requests that are decoded together.
        input_len: tokens of a prompt: the head's product is for its last one only.
    """
    from hfspeed.plan.ops import Experts

    kinds = dict(held.kinds)
    chosen = next(((op.top_k / op.count) for op in plan.ops if isinstance(op, Experts)), 1.0)
    experts = kinds.get("experts", 0)
    rest = held.reads - experts * chosen
    head = kinds.get("head") or kinds.get("embed", 0)
    touched = 1 - (1 - chosen) ** prompts  # of experts that are chosen evenly
    per_token = held.reads - head * (1 - 1 / input_len)
    return Needs(rest + experts * touched, 2 * per_token / item)


class Bounds:
    """What the process can be asked."""

    def __init__(self) -> None:
        self.dtype = "bfloat16"

    def work(self, model: str, prompts: int, input_len: int, dtype: str = "auto", trust: bool = False) -> Answer:
        """What a model needs, or why that is not known."""
        from hfspeed.errors import HfspeedError
        from hfspeed.plan.holdings import holdings
        from hfspeed.plan.places import Layout
        from hfspeed.plan.tensors import BITS
        from hfspeed.planner.load import load
        from hfspeed.planner.serve import planned
        from hfspeed.planner.sources import sources

        try:
            subject = load(model, trust_remote_code=trust)
            plan = planned(subject)[0]
            found = sources(subject, plan, dtype)
        except HfspeedError as error:
            return {"unknown": str(error).splitlines()[0]}
        self.dtype = found.dtype
        held = holdings(plan, found, Layout(1, 1, 1)).held[0]
        one = needs(plan, held, item=BITS[found.dtype] // 8, prompts=prompts, input_len=input_len)
        return {"read": one.read, "multiply": one.multiply, "dtype": found.dtype}

    def measure(self) -> Answer:
        """Bytes and floating-point operations per second, now, over all devices."""
        import torch

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        count = max(1, torch.cuda.device_count())
        dtype = getattr(torch, self.dtype)
        much = torch.ones(READ // 4, dtype=torch.float32, device=device)
        left, right = (torch.ones(SIDE, SIDE, dtype=dtype, device=device) for _ in range(2))
        read = READ / _seconds(much.sum, device)
        multiply = 2 * SIDE**3 / _seconds(lambda: left @ right, device)
        return {"read": read * count, "multiply": multiply * count}


def _seconds(do: Callable[[], Any], device: torch.device) -> float:
    """The shortest of a few runs: what the machine can do, not what it did beside others."""
    import torch

    do()
    taken = []
    for _ in range(TIMES):
        begin = time.perf_counter()
        do()
        if device.type == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - begin)
    return min(taken)


def limits(bounds: dict[str, Any], prompts: int) -> dict[str, float]:
    """The highest rates, in tokens per second, by the key of the measure that they bound."""
    wanted, speeds = bounds.get("needs", {}), bounds.get("speeds", [])
    if not speeds or not wanted.get("read"):
        return {}
    read, multiply = (median(one[name] for one in speeds) for name in ("read", "multiply"))
    return {"prefill": multiply / wanted["multiply"], "decode": prompts * read / wanted["read"]}


if __name__ == "__main__":
    answering(Bounds())
