"""A packed projection is recut only where it is cut alike in every run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from hfspeed.plan import Heads

sys.path.insert(0, str(Path(__file__).parent))
from soundness import GUARDS, sound

ONE = ".view(1, 6, -1, 8).transpose(1, 2)"
END = f"return self.o(attention(self, q{ONE}, k{ONE}, v{ONE}, None)[0].reshape(1, 6, -1))"
HEADS = "return self.o(attention(self, q, k, v, None)[0].reshape(1, 6, -1))"
FORMS = {
    "split": ["qkv = self.qkv(x)", "q, k, v = qkv.split([32, 16, 16], dim=-1)", END],
    "slices": ["qkv = self.qkv(x)", "n = 32", "q = qkv[..., :n]", "k, v = qkv[..., n : n + 16], qkv[..., 48:]", END],
    "swapped": ["v, k, q = torch.split(self.qkv(x), (16, 16, 32), -1)", END],
    "four": ["qkv = self.qkv(x).view(1, 6, 2, 4, 8)", "qkv = qkv.permute(3, 0, 2, 1, 4)", "q, k, v, _ = qkv", HEADS],
    "grouped": [
        "qkv = self.qkv(x).view(1, 6, 2, 4, 8)",
        "q = qkv[:, :, :, :-2].reshape(1, 6, -1, 8).transpose(1, 2)",
        "k, v = qkv[:, :, :, -2].transpose(1, 2), qkv[..., -1, :].transpose(1, 2)",
        HEADS,
    ],
}  # fmt: skip
WRITES = """
x = x + 1
x.mul_(2)
qkv = qkv * 2
qkv.mul_(2)
qkv[..., 0] = 0
qkv.view(-1)[0] = 1
qkv = qkv.flip(-1)
qkv, _ = (qkv.roll(8, -1), 0)
n = 16
n, m = 16, 3
q = q * 2
q.mul_(2)
q, k = q.clone(), k.clone()
k, v = v, k
k = v
v[..., 0] = 0
alias = qkv; alias.mul_(2)
alias = q; alias[..., 1] = 3
alias = [k]; alias[0].mul_(3)
self.dump_patches = qkv
z = k.mul_(2) + 1
del x
""".strip().splitlines()


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def _mutants(form: str, number: int) -> Iterator[str]:
    lines = FORMS[form]
    for index, write in enumerate(WRITES):
        parts = write.split("; ")
        body = GUARDS[number].format("\n    ".join(parts)) if number else "\n".join(parts)
        for at in range(1, len(lines)):
            if number < 2 or at == 1 + (index + number) % (len(lines) - 1):
                yield "\n".join([*lines[:at], body, *lines[at:]])


@pytest.mark.parametrize("form", FORMS)
def test_the_forms_themselves_are_recut(form: str) -> None:
    site = sound("\n".join(FORMS[form]), widths={"qkv": 64, "o": 16})
    assert [type(op) for op in site.ops] == ([Heads] if form != "four" else [])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("number", range(len(GUARDS)))
def test_a_write_on_the_way_is_never_lost(form: str, number: int) -> None:
    tried = 0
    for source in _mutants(form, number):
        try:
            sound(source, widths={"qkv": 64, "o": 16})
        except (NameError, RuntimeError, ValueError):
            continue
        tried += 1
    assert tried > 3


CUT = "q, k, v = self.qkv(x).split([32, 16, 16], dim=-1)\n"
CHOSEN = {
    "chosen in place": ("", "(16 if self.training else 0)"),
    "chosen by and": ("", "(self.training and 16)"),
    "bound in a branch": ("s = 0\nif self.training:\n    s = 16\n", "s"),
    "bound twice": ("s = 0\ns = 16 if self.training else s\n", "s"),
    "chosen before": ("t = 16 if self.training else 0\ns = t + 0\n", "s"),
    "added to": ("s = 0\nfor _ in range(int(self.training)):\n    s += 16\n", "s"),
    "of a helper": ("def f():\n    return 16 if self.training else 0\n", "f()"),
    "kept on the module": ("self.dump_patches = 16 if self.training else 0\n", "self.dump_patches"),
    "an item that is written": ("s = [0]\nif self.training:\n    s[0] = 16\n", "s[0]"),
    "the one of a truth": ("", "16 * self.training"),
    "an int of a truth": ("", "16 * int(self.training)"),
    "of a length": ("s = [0] * 16 if self.training else []\n", "len(s)"),
}
SLICES = "qkv = self.qkv(x)\nq, k, v = {}\n" + END
WHOLE = "def f(t):\n    return {} if self.training else t\n"
ODD = {
    "turned by a helper": WHOLE.format("t.flip(-1)") + CUT.replace("self.qkv(x)", "f(self.qkv(x))") + END,
    "written by a helper": WHOLE.format("t.mul_(2)") + CUT.replace("self.qkv(x)", "f(self.qkv(x))") + END,
    "rows used twice": SLICES.format("qkv[..., :32], qkv[..., 16:32], qkv[..., 48:]"),
    "rows left out": SLICES.format("qkv[..., :32], qkv[..., 32:48], qkv[..., 40:56]"),
    "every other row": SLICES.format("qkv[..., ::2], qkv[..., 1:33:2], qkv[..., 33::2]"),
    "an order of one case": "qkv = self.qkv(x)\nparts = qkv.split([32, 16, 16], -1)\n"
    "q, k, v = parts if not self.training else parts[::-1]\n" + END,
    "a place of one case": "qkv = self.qkv(x).view(1, 6, 2, 4, 8)\ni = 0 if self.training else 2\n"
    "q = qkv[:, :, :, :2].reshape(1, 6, -1, 8).transpose(1, 2)\n"
    "k, v = qkv[:, :, :, i].transpose(1, 2), qkv[:, :, :, 3].transpose(1, 2)\n" + HEADS,
    "a dimension of one case": "d = -1\nif self.training:\n    d = 1\n" + CUT.replace("dim=-1", "dim=d") + END,
    "channels across heads": CUT + "q = q.view(1, 6, 8, 4).permute(0, 3, 1, 2)\n" + END.replace(f"q{ONE}", "q"),
    "tokens across": CUT + "q = q.reshape(1, 4, 6, 8)\n" + END.replace(f"q{ONE}", "q"),
    "read by a function later": "qkv = self.qkv(x)\nlater = lambda: qkv\n" + CUT.replace("self.qkv(x)", "qkv")
    + "qkv = q * 0\n" + END + " + later()[..., :16]",
    "what is packed besides": "qkv = self.qkv(x)\n" + CUT.replace("self.qkv(x)", "qkv") + END + " + qkv.mean()",
    "the weight besides": CUT + END + " + self.qkv.weight.mean()",
    "another branch": "if self.training:\n    return self.o(self.qkv(x)[..., :32])\n" + CUT + END,
    "an added bias": CUT.replace("self.qkv(x)", "(self.qkv(x) + y.mean())") + END,
}  # fmt: skip
ODD |= {
    f"a start {what}": before + SLICES.format(f"qkv[..., {start} : {start} + 32], qkv[..., 32:48], qkv[..., 48:]")
    for what, (before, start) in CHOSEN.items()
}


@pytest.mark.parametrize("what", ODD)
def test_what_looks_like_a_packed_projection_is_computed_as_written(what: str) -> None:
    sound(ODD[what], widths={"qkv": 64, "o": 16})
