"""Packed projections in every order and spelling: fused, proven on ranks, and a wrong order of rows is found out."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from hfspeed.emit import emitted
from hfspeed.example import Example
from hfspeed.fusions.packed_gated import PackedGatedLinear
from hfspeed.fusions.packed_heads import PackedHeads
from hfspeed.pattern.fusion import Fusion
from hfspeed.plan import Heads, Plan, Stacked, rows
from hfspeed.planner.mismatch import Mismatch
from hfspeed.planner.prove import prove_module
from hfspeed.testing import applied, module_of, plan_of

WIDE = {"q": 32, "k": 16, "v": 16}
VIEWS = "\n".join(f"{role} = {role}.reshape(1, 6, -1, 8).transpose(1, 2)" for role in "qkv")
CALL = "\nreturn self.o(attention(self, q, k, v, None, scaling=0.3)[0].reshape(1, 6, -1))"
WIDTHS = {"qkv": 64, "o": 16}


def slices(order: str) -> str:
    lines, at = ["packed = self.qkv(x)"], 0
    for role in order:
        lines.append(f"{role} = packed[..., {at}:{at + WIDE[role]}]")
        at += WIDE[role]
    return "\n".join(lines)


def split(order: str) -> str:
    return f"{', '.join(order)} = self.qkv(x).split({[WIDE[role] for role in order]}, dim=2)"


def narrow(order: str) -> str:
    starts = {role: sum(WIDE[r] for r in order[: order.index(role)]) for role in order}
    cuts = ", ".join(f"packed.narrow(-1, {starts[role]}, {WIDE[role]})" for role in order)
    return f"packed = self.qkv(x)\n{', '.join(order)} = {cuts}"


def grouped(order: str) -> str:
    """Two groups, each with the rows of one key head: two queries, a key, a value, in some order."""
    heads = {"q": 2, "k": 1, "v": 1}
    lines, at = ["packed = self.qkv(x).view(1, 6, 2, 4, 8)"], 0
    for role in order:
        lines.append(f"{role} = packed[:, :, :, {at}:{at + heads[role]}].reshape(1, 6, -1, 8)")
        at += heads[role]
    return "\n".join(lines)


SPELLINGS = [slices, split, narrow, grouped]


def proven(fusion: Fusion, example: Example, change=lambda plan: plan, ranks=(1, 2, 4)) -> Plan:
    root = module_of(example)
    site, call = applied(fusion, root)
    assert site.ops, [str(refusal) for refusal in site.refusals]
    plan = change(plan_of(site, root))
    prove_module(plan, root, "block", call.args, call.kwargs, classes=emitted(plan), ranks=ranks)
    return plan


@pytest.mark.parametrize("order", ["".join(order) for order in permutations("qkv")])
@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda spelling: spelling.__name__)
def test_every_order(spelling, order: str) -> None:
    plan = proven(PackedHeads(), Example(f"{spelling(order)}\n{VIEWS}{CALL}", widths=WIDTHS))
    op = next(op for op in plan.ops if isinstance(op, Heads))
    assert (op.parts, op.heads, op.kv_heads, op.head_size, op.split) == (("qkv",), 4, 2, 8, True)
    assert bool(op.rows) is not (order == "qkv" and spelling is not grouped)
    assert all(text not in plan.forwards[0].text for text in ("16", "32", "packed", "view(1, 6, 2"))


def wrong(kind: type, order: list[int]):
    """A change of the plan: the rows of the op in another order."""
    return lambda plan: replace(
        plan, ops=tuple(replace(op, rows=rows.runs(order)) if isinstance(op, kind) else op for op in plan.ops)
    )


WRONG = {
    "key and value swapped": [*range(32), *range(48, 64), *range(32, 48)],
    "heads of the query swapped": [*range(8, 16), *range(8), *range(16, 64)],
    "two rows of the value swapped": [*range(62), 63, 62],
    "head by head": [*range(16), *range(32, 40), *range(48, 56), *range(16, 32), *range(40, 48), *range(56, 64)],
}


@pytest.mark.parametrize("order", WRONG.values(), ids=WRONG)
def test_a_wrong_order_is_found_out(order: list[int]) -> None:
    example = Example(f"{split('qkv')}\n{VIEWS}{CALL}", widths=WIDTHS)
    with pytest.raises(Mismatch):
        proven(PackedHeads(), example, wrong(Heads, order), ranks=(1,))


HALVES = {
    "gate, up = self.both(x).chunk(2, dim=-1)": (),
    "up, gate = self.both(x).chunk(2, dim=-1)": ((24, 48, 1), (0, 24, 1)),
    "up, gate = torch.split(self.both(x), 24, -1)": ((24, 48, 1), (0, 24, 1)),
    "both = self.both(x)\ngate = both[..., 24:]\nup = both[..., :24]": ((24, 48, 1), (0, 24, 1)),
    "both = self.both(x)\ngate, up = both[..., ::2], both[..., 1::2]": ((0, 47, 2), (1, 48, 2)),
    "both = self.both(x)\ngate, up = both[..., 1::2], both[..., ::2]": ((1, 48, 2), (0, 47, 2)),
}


@pytest.mark.parametrize("cut", HALVES)
@pytest.mark.parametrize("product", ["F.silu(gate) * up", "up * F.gelu(gate)"])
def test_halves_in_every_order(cut: str, product: str) -> None:
    example = Example(f"{cut}\nreturn self.down({product})", widths={"both": 48})
    plan = proven(PackedGatedLinear(), example)
    op = next(op for op in plan.ops if isinstance(op, Stacked))
    assert (op.parts, op.sizes, op.split, op.rows) == (("both",), (24, 24), True, HALVES[cut])


@pytest.mark.parametrize("order", [[*range(24, 48), *range(24)], [*range(46), 47, 46]], ids=["halves", "two rows"])
def test_halves_in_a_wrong_order_are_found_out(order: list[int]) -> None:
    source = "gate, up = self.both(x).chunk(2, dim=-1)\nreturn self.down(F.silu(gate) * up)"
    example = Example(source, widths={"both": 48})
    with pytest.raises(Mismatch):
        proven(PackedGatedLinear(), example, wrong(Stacked, order), ranks=(1,))


UNTAKEN = """
if y is None:
    q, k, v = self.qkv(x).chunk(3, -1)
else:
    q, k, v = self.qkv(y).split([32, 16, 16], dim=-1)
"""


def test_a_branch_that_was_not_taken_stops() -> None:
    plan = proven(PackedHeads(), Example(f"{UNTAKEN}\n{VIEWS}{CALL}", widths=WIDTHS))
    text = plan.forwards[0].text
    assert text.index("raise NotImplementedError") < text.index("self.qkv(x).chunk(3, -1)")
    assert "self.qkv(y).split(self.qkv_sizes, dim=-1)" in text
