"""What every fusion must keep: numbers, in the branches that the recorded run did not take as well."""

from __future__ import annotations

import copy

import torch

from hfspeed.emit import emitted
from hfspeed.example import Example
from hfspeed.fusions import FUSIONS
from hfspeed.graph.exact import Exact
from hfspeed.graph.record import Call
from hfspeed.graph.tensors import tensors
from hfspeed.pattern.fusion import apply
from hfspeed.pattern.site import Site
from hfspeed.planner.witness import distance
from hfspeed.reference.build import build
from hfspeed.testing import module_of, plan_of, recorded

LOUD = ("view size is not compatible", "when their projections were merged", "this branch was not taken")
"""What may be said instead of a result: a part of a merged one has gaps, or another value was to be projected."""
GUARDS = (
    "{}",
    "if self.training:\n    {}",
    "if not self.training:\n    pass\nelse:\n    {}",
    "for _ in range(2 if self.training else 0):\n    {}",
    "with torch.enable_grad() if False else torch.no_grad():\n    {}",
    "try:\n    raise ValueError if self.training else KeyError\nexcept ValueError:\n    {}\nexcept KeyError:\n    pass",
)
"""Ways to keep a statement from running in evaluation, or to make it run in one place of several."""


def sound(source: str, **kwargs) -> Site:
    """Every fusion is tried; what comes out must agree with the author, in training mode too, inputs included."""
    with Exact():
        root = module_of(Example(source, **kwargs))
        call = recorded(root).calls["block"]
        site = Site(call, regroup=True)
        for fusion in FUSIONS:
            apply(fusion, site)
        if site.ops:
            plan = plan_of(site, root)
            built = build(plan, root, emitted(plan), under="block", strict=False)
            for training in (False, True):
                try:
                    theirs = run(copy.deepcopy(root).train(training), call)
                except (NameError, RuntimeError):
                    continue  # the author's own mistake
                try:
                    ours = run(built.train(training), call)
                except (RuntimeError, NameError) as error:
                    if any(word in str(error) for word in LOUD):
                        continue
                    raise AssertionError(site.text()) from error
                worst = max(map(distance, theirs, ours))
                assert len(theirs) == len(ours), site.text()
                assert worst < 1e-8, f"off by {worst}, training {training}\n{site.text()}"
    return site


def run(root: torch.nn.Module, call: Call) -> list[torch.Tensor]:
    """Everything returned, and the inputs afterwards: a forward may write to them."""
    args = [arg.clone() for arg in call.args]
    with torch.no_grad():
        return [*tensors(root.get_submodule("block")(*args)), *args]
