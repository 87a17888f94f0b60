"""Examples become tests: every fusion is proven by its own examples, ours and other people's alike.

    @pytest.mark.parametrize(("fusion", "example"), cases(FUSIONS, "fuses"))
    def test_fuses(fusion, example):
        check_fuses(fusion, example)
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch
from torch import nn

from hfspeed.axes import tensor
from hfspeed.emit import emitted
from hfspeed.example import Example
from hfspeed.fusions.attention import InterfaceAttention
from hfspeed.graph.record import Call, Recording, record
from hfspeed.pattern.fusion import Fusion, apply
from hfspeed.pattern.replacement import Replacement
from hfspeed.pattern.site import Site
from hfspeed.plan import Experts, Plan, Row, Wrapper, shares
from hfspeed.planner.build import randomise
from hfspeed.planner.destinations import destinations
from hfspeed.planner.forwards import forwards
from hfspeed.planner.leaves import Splits, kept
from hfspeed.planner.prove import prove_module
from hfspeed.reference.build import build
from hfspeed.refusal import Refusal, Refused

HIDDEN = 16
"""Width of the inputs ``x`` and ``y`` of an example, ``[1, 6, 16]``; beside ``ids``, ``x`` is ``[6, 16]``.

``positions`` are ``[1, 6]``.
"""
EXPERTS, CHOSEN = 4, 2
"""``ids`` and ``weights`` are ``[6, 2]``, with numbers below 4."""
WIDTH = 24
"""Width that a linear gives when the example does not say."""

_FILE = '''"""The module of one example."""

import torch
import torch.nn.functional as F
from torch import nn

from hfspeed.planner.build import dispatch as attention


class Block(nn.Module):
    def __init__(self):
        super().__init__()
{children}

    def forward(self, {inputs}):
{body}


class Root(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, {inputs}):
        return self.block({inputs})
'''


def cases(fusions: Iterable[Any], kind: Literal["fuses", "refuses"]) -> list[Any]:
    """``pytest.param(fusion, example)`` for every example, named after both."""
    import pytest

    return [
        pytest.param(fusion, example, id=f"{fusion.name}-{number}")
        for fusion in fusions
        for number, example in enumerate(getattr(fusion, kind))
    ]


def module_of(example: Example) -> nn.Module:
    """A module whose child ``block`` has the example as its forward; random weights, float64."""
    text = _FILE.format(
        children=textwrap.indent("\n".join(_children(example)), " " * 8) or " " * 8 + "pass",
        body=textwrap.indent(_body(example), " " * 8),
        inputs=_names(example.source),
    )
    module = _imported(text)
    root: nn.Module = module.Root().double().eval()
    root(**_inputs(root))  # gives lazy linears their input widths
    randomise(root, seed=3)
    return root.requires_grad_(False)


def _children(example: Example) -> list[str]:
    """The constructor's lines: what the example says, and a linear for every other child it calls."""
    named = dict.fromkeys(re.findall(r"self\.(\w+)", example.source))
    lines = []
    for name in (n for n in named if not hasattr(nn.Module(), n)):
        made = example.children.get(name)
        if made is None:
            made = f"nn.LazyLinear({example.widths.get(name, WIDTH)})"
        lines.append(f"self.{name} = {made}")
    return lines


def _names(source: str) -> str:
    if re.search(r"\bids\b", source):
        return "x, ids, weights"
    return ", ".join(["x", *(name for name in ("y", "positions") if re.search(rf"\b{name}\b", source))])


def _body(example: Example) -> str:
    return textwrap.dedent(example.source).strip()


def _imported(text: str) -> ModuleType:
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    name = f"hfspeed_example_{digest}"
    if name not in sys.modules:
        file = Path(tempfile.mkdtemp(prefix="hfspeed-example-")) / f"{name}.py"
        file.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def _inputs(root: nn.Module) -> dict[str, torch.Tensor]:
    source = torch.Generator().manual_seed(1)
    names = inspect.signature(root.forward).parameters
    if "ids" in names:
        return {
            "x": torch.randn((6, HIDDEN), generator=source, dtype=torch.float64),
            "ids": torch.stack([torch.randperm(EXPERTS, generator=source)[:CHOSEN] for _ in range(6)]),
            "weights": torch.rand((6, CHOSEN), generator=source, dtype=torch.float64),
        }
    given = {n: torch.randn((1, 6, HIDDEN), generator=source, dtype=torch.float64) for n in names}
    return given | ({"positions": torch.arange(6)[None]} if "positions" in names else {})


def recorded(root: nn.Module) -> Recording:
    """One run of an example's module on random inputs."""
    return record(root, _inputs(root), keep_values=True)


def applied(fusion: Fusion, root: nn.Module) -> tuple[Site, Call]:
    """The block of ``root`` after one fusion, with whatever its dataflow lets be split."""
    call = recorded(root).calls["block"]
    block = tensor.block(call)
    columns = block.columns if block else {}
    site = Site(call, split=frozenset(path.removeprefix("block.") for path in columns), regroup=True)
    apply(fusion, site)
    return site, call


def plan_of(site: Site, root: nn.Module) -> Plan:
    """The plan of an example's module: the site's ops, and every other child as its dataflow says."""
    block = tensor.block(site.call)
    splits = Splits(block.columns, frozenset(block.rows), block.gathered) if block else Splits()
    claimed = {op.path for op in site.ops}
    claimed |= {f"block.{part}" for op in site.ops for part in getattr(op, "parts", ())}
    attention = InterfaceAttention()
    attends = (attention.plan(site.call, site.call.module),) if attention.sees(site.call) else ()
    ops = (*attends, *site.ops, *kept(root, frozenset(claimed), splits))
    weights, ties = destinations(root, ops)
    return Plan(
        architecture="Root",
        module=type(root).__module__,
        size=HIDDEN,
        ops=ops,
        weights=weights,
        ties=ties,
        forwards=forwards([site]) if site.changes else (),
        wrapper=Wrapper("block", (), "", ()),
        stages=None,
        tensor=block is not None,
    )


def check_fuses(fusion: Fusion, example: Example) -> None:
    """The fusion applies, gives the source promised, computes the same numbers, and applies once only."""
    root = module_of(example)
    site, call = applied(fusion, root)
    assert site.ops, f"{fusion.name} does not match; refused: {[str(r) for r in site.refusals]}"
    body = textwrap.dedent(site.text().split("\n", 1)[1]).strip()
    assert textwrap.dedent(example.after).strip() in body, body
    plan = plan_of(site, root)
    ranks = (1, 2, 4) if any(isinstance(op, Row) for op in plan.ops) else (1,)
    classes = emitted(plan)
    prove_module(plan, root, "block", call.args, call.kwargs, classes=classes, ranks=ranks)
    again, _ = applied(fusion, build(plan, root, classes, under="block", strict=False))
    assert not again.ops, f"{fusion.name} applies twice"


def check_refuses(fusion: Fusion | Replacement, example: Example) -> Refusal:
    """The fusion says no, for the reason promised; returns the refusal."""
    root = module_of(example)
    refusals: list[Refusal]
    if isinstance(fusion, Fusion):
        site, _ = applied(fusion, root)
        assert not site.ops, f"{fusion.name} accepted it: {site.notes}"
        refusals = site.refusals
    else:
        call = recorded(root).calls["block"]
        assert fusion.sees(call), f"{fusion.name} does not even see it"
        try:
            op = fusion.plan(call, call.module)
        except Refused as no:
            refusals = [no.refusal]
        else:
            raise AssertionError(f"{fusion.name} accepted it: {op}")
    reasons = {refusal.reason: refusal for refusal in refusals}
    assert example.reason in reasons, f"expected {example.reason}, got {[str(r) for r in refusals]}"
    return reasons[example.reason]


def check_replaces(fusion: Replacement, example: Example) -> None:
    """The replacement takes the module, and the op computes the author's numbers."""
    root = module_of(example)
    call = recorded(root).calls["block"]
    assert fusion.sees(call), f"{fusion.name} does not see it"
    op = fusion.plan(call, call.module)
    assert op.path == "block"
    weights, ties = destinations(root, (op,))
    plan = Plan("Root", type(root).__module__, HIDDEN, (op,), weights, ties, (), Wrapper("block", (), ""), None, True)
    ranks = tuple(count for count in (1, 2, 4) if shares.divides(op, count)) if isinstance(op, Experts) else (1,)
    prove_module(plan, root, "block", call.args, call.kwargs, ranks=ranks)
