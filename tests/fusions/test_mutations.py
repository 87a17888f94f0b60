"""What computes something else is refused or computed as written, in the branches that no run took as well."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from soundness import GUARDS, sound

ATTENTION = "attention(self, {}, {}, {}, None)[0]"
VIEW = ".view(1, 6, -1, 8).transpose(1, 2)"
WIDTHS = {"q": 32, "k": 16, "v": 16, "o": 16}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


# Statements that write to something, or look as if they did. `act` stands for what the activation gave.
WRITES = """
x = x + 1
x += 1
x.mul_(2)
x[..., 0] = 1
x.view(-1)[0] = 3
x.data.mul_(2)
x.detach().mul_(2)
x[0].mul_(2)
torch.add(x, 1, out=x)
F.relu_(x)
F.relu(x, inplace=True)
x, y = y, x
x = y
(x := x + 1)
flat = x.view(-1); flat.mul_(2)
turned = x.transpose(1, 2); turned[..., 0] = 5
one, two = x.chunk(2, dim=-1); one.add_(1)
for row in x: row.mul_(2)
y.mul_(2)
y = y * 2
z = x.mul_(2)
z = x.clone(); z.mul_(2)
gate = gate * 2
gate.mul_(2)
gate[..., 0] = 0
gate.view(-1)[0] = 1
up.mul_(2)
up += 1
up = up.clone()
up, gate = gate, up
self.dump_patches = x
self.dump_patches = up
z = up.mul_(2)
z = gate.add_(1) + up
alias = up; alias.mul_(2)
alias = up.view(-1); alias[0] = 1
alias = [up]; alias[0].mul_(3)
alias = (gate, up); alias[1].mul_(3)
print(end="")
assert x is not None
del y
""".strip().splitlines()
FORWARDS = {
    "temporaries": ["gate = self.gate(x)", "up = self.up(x)", "gate = F.silu(gate)", "h = gate * up"],
    "pair": ["gate, up = self.gate(x), self.up(x)", "h = F.silu(gate) * up"],
    "packed": ["gate, up = self.both(x).chunk(2, dim=-1)", "h = F.silu(gate) * up"],
    "halves": ["both = self.both(x)", "gate, up = both.split(24, dim=-1)", "gate = F.silu(gate)", "h = up * gate"],
    "branch": ["gate = self.gate(x)", "if x.ndim == 3:\n    up = self.up(x)", "h = F.silu(gate) * up"],
    "named in a branch": [
        "gate, own = self.gate(x), None",
        "source = x if own is None else own",
        "if x.ndim == 3:\n    up = self.up(source)",
        "h = F.silu(gate) * up",
    ],
    "by index": ["halves = self.both(x).chunk(2, -1)", "gate = F.silu(halves[0])", "up = halves[1]", "h = gate * up"],
}
END = "return self.down(h) + 0 * x.sum() + y.sum() * 0"


def _mutants(form: str, number: int) -> Iterator[str]:
    """The form with every write at every other place; with a guard, each write at one place."""
    places = len(FORWARDS[form])
    for index, write in enumerate(WRITES):
        lines = write.split("; ")
        body = GUARDS[number].format("\n    ".join(lines)) if number else "\n".join(lines)
        for at in range(1, places + 1):
            if (index + at) % 2 == 0 if number == 0 else at == 1 + (index + number) % places:
                yield "\n".join([*FORWARDS[form][:at], body, *FORWARDS[form][at:], END])


@pytest.mark.parametrize("form", FORWARDS)
@pytest.mark.parametrize("number", range(len(GUARDS)))
def test_a_write_between_is_never_lost(form: str, number: int) -> None:
    """Every write, guarded in every way, in every form."""
    tried = 0
    for source in _mutants(form, number):
        try:
            sound(source, widths={"both": 48})
        except (UnboundLocalError, RuntimeError):
            continue  # a name that is not there yet, or a write that torch itself refuses
        tried += 1
    assert tried > 20


ODD = {
    "another input": "return self.down(F.silu(self.gate(x)) * self.up(y))",
    "another input in one case": "z = x if x.ndim < 9 else y\nreturn self.down(F.silu(self.gate(z)) * self.up(x))",
    "another input in a branch": """
        source = y if self.training else x
        gate = self.gate(x)
        if x.ndim == 3:
            up = self.up(source)
        return self.down(F.silu(gate) * up)
    """,
    "an input written in a branch": """
        gate = self.gate(x)
        if x.ndim == 3:
            source = x.mul_(2) if self.training else x
            up = self.up(source)
        return self.down(F.silu(gate) * up)
    """,
    "a branch that is left": """
        gate = self.gate(x)
        if self.training:
            return self.down(gate)
        return self.down(F.silu(gate) * self.up(x))
    """,
    "a projection of one branch": """
        up = self.up(x)
        gate = self.gate(x) if not self.training else x.repeat(1, 1, 3)[..., :24]
        return self.down(F.silu(gate) * up)
    """,
    "an input kept on the module": """
        self.dump_patches = x
        gate = self.gate(self.dump_patches)
        if self.training:
            self.dump_patches = y
        return self.down(F.silu(gate) * self.up(self.dump_patches))
    """,
    "gate used twice": "g = self.gate(x)\nreturn self.down(F.silu(g) * self.up(x)) + g",
    "gate called twice": "return self.down(F.silu(self.gate(x)) * self.up(x)) + self.gate(x)",
    "gate named on the way": "g = y[..., :1]\nh = self.down(F.silu(g := self.gate(x)) * self.up(x))\nreturn h + g",
    "activation after the product": "return self.down(F.silu(self.gate(x) * self.up(x)))",
    "activation of both": "return self.down(F.silu(self.gate(x)) * F.silu(self.up(x)))",
    "a third factor": "return self.down(F.silu(self.gate(x)) * self.up(x) * self.third(x))",
    "a third factor before": "return self.down(self.third(x) * (F.silu(self.gate(x)) * self.up(x)))",
    "a sum": "return self.down(F.silu(self.gate(x)) + self.up(x))",
    "a quotient": "return self.down(F.silu(self.gate(x)) / self.up(x).exp())",
    "rounded on the way": "return self.down(F.silu(self.gate(x).to(torch.int32).to(x.dtype)) * self.up(x))",
    "rounded before the product": "return self.down(F.silu(self.gate(x)) * (30 * self.up(x)).long())",
    "negated": "return self.down(F.silu(-self.gate(x)) * self.up(x))",
    "shifted": "return self.down((F.silu(self.gate(x)) + 1) * self.up(x))",
    "rolled": "return self.down(F.silu(self.gate(x)) * self.up(x).roll(1, -1))",
    "turned": "return self.down(F.silu(self.gate(x)) * self.up(x).flip(1))",
    "one token late": "return self.down(F.silu(self.gate(x)) * self.up(torch.cat([y[:, :1], x[:, 1:]], 1)))",
    "a clipped activation": "return self.down(F.silu(self.gate(30 * x)).clamp(max=20) * self.up(x))",
    "halves swapped": "up, gate = self.both(x).chunk(2, dim=-1)\nreturn self.down(up * F.silu(gate))",
    "thirds": "gate, up, rest = self.both(x).chunk(3, dim=-1)\nreturn F.silu(gate) * up + rest",
    "unequal halves": "gate, up = self.both(x).split([47, 1], dim=-1)\nreturn F.silu(gate) * up",
    "every other": "both = self.both(x)\nreturn self.down(F.silu(both[..., ::2]) * both[..., 1::2])",
    "cut along tokens": "gate, up = self.both(x).chunk(2, dim=1)\nreturn F.silu(gate) * up",
    "one half twice": "gate, up = self.both(x).chunk(2, dim=-1)\nreturn self.down(F.silu(gate) * gate)",
    "halves in one case": """
        gate, up = self.both(x).chunk(2, dim=-1)
        parts = [gate, up]
        return self.down(F.silu(parts[0]) * parts[1 if x.shape[1] < 100 else 0])
    """,
    "one of two": "a, b = self.a(x), self.b(x)\nreturn F.silu(a) * (a if self.training else b)",
    "either": "gate, up = self.gate(x), self.up(x)\nreturn F.silu(gate) * (up if x.shape[1] < 100 else y.sum())",
    "hidden in a helper": """
        def scaled(value):
            return value * 2 if self.training else value
        gate, up = self.gate(x), self.up(x)
        return self.down(F.silu(scaled(gate)) * up)
    """,
    "a helper that writes": """
        def noted(value):
            return value.mul_(2) if self.training else value
        up = self.up(x)
        return self.down(F.silu(self.gate(noted(x))) * up)
    """,
    "read later by a function": """
        gate = self.gate(x)
        later = lambda: gate
        up = self.up(x)
        h = self.down(F.silu(gate) * up)
        gate = h.sum()
        return h + later()
    """,
    "written in the same statement": "t = (x.mul_(2) if self.training else 0, self.a(x), self.b(x))\nreturn t[1]",
    "a name that emitted code wants": "a_out = y * 2\na = self.a(x)\nreturn a_out[..., 0] + (a * self.b(x))[..., 0]",
}


@pytest.mark.parametrize("what", ODD)
def test_what_looks_like_a_gated_mlp_is_computed_as_written(what: str) -> None:
    sound(ODD[what], widths={"both": 48, "third": 24})


def test_a_clipped_activation_of_a_child_is_no_known_one() -> None:
    """It differs from the known one only far from zero."""
    clipped = "type('Clipped', (nn.Module,), {'forward': lambda self, x: F.silu(x).clamp(max=20)})()"
    site = sound("return self.down(self.act(self.gate(x)) * self.up(x))", children={"act": clipped})
    assert not any("act_and_mul" in note for note in site.notes)


HEADS = "q, k, v = self.q(x), self.k(x), self.v(x)\n"
INTERFACE = {
    "q narrower": HEADS + "q = q[..., :16]\nreturn self.o({a}.reshape(1, 6, -1))",
    "k and v swapped": HEADS + "k, v = v, k\nreturn self.o({a}.reshape(1, 6, -1))",
    "k serves as v": HEADS + "v = k\nreturn self.o({a}.reshape(1, 6, -1))",
    "k and v exchanged in one case": HEADS + "if self.training:\n    k, v = v, k\nreturn self.o({a}.reshape(1, 6, -1))",
    "k from before": "q, v = self.q(x), self.v(x)\nx = x * 2\nk = self.k(x)\nreturn self.o({a}.reshape(1, 6, -1))",
    "v added later": HEADS + "return self.o({a}.reshape(1, 6, -1)) + v",
    "q mixed into k": HEADS + "k = k + q[..., :16]\nreturn self.o({a}.reshape(1, 6, -1))",
    "scale of the input": HEADS + "q = q * x.mean(-1, True)\nreturn self.o({a}.reshape(1, 6, -1))",
    "k of another size": "q, k, v = self.q(x), self.k(x), self.wide(x)[..., :16]\nreturn self.o({a}.reshape(1, 6, -1))",
    "k kept on the module": "k = self.k(x) if self.training else self.k(x)\nq, v = self.q(x), self.v(x)\nreturn {a}",
}


@pytest.mark.parametrize("what", INTERFACE)
def test_what_looks_like_plain_heads_is_computed_as_written(what: str) -> None:
    source = INTERFACE[what].replace("{a}", ATTENTION.format("q" + VIEW, "k" + VIEW, "v" + VIEW))
    site = sound(source, widths=WIDTHS)
    if what == "k and v swapped":
        assert [op.parts for op in site.ops] == [("q", "v", "k")]
