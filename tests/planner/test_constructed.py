"""Numbers that the model served could have otherwise than the one its author loads."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hfspeed.errors import RefusedError
from hfspeed.planner.decide import decide

sys.path.insert(0, str(Path(__file__).parent))
from mutants import mutant

EXPAND = "    def forward(self, stream):\n        opened = self.w1(stream)\n"
MADE = "        self.w3 = nn.Linear(config.width, config.inner, bias=False)\n"
MODEL = '    """The decoder with its head; the logits are scaled."""\n'

FOLD = """    def train(self, mode=True):
        super().train(mode)
        if not mode and not self.folded:
            self.w2.weight.data *= 0.5
        if mode and self.folded:
            self.w2.weight.data /= 0.5
        self.folded = not mode
        return self

"""
LOAD = """
    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        model = super().from_pretrained(*args, **kwargs)
        model.head.weight.data *= 0.5
        return model
"""
ONCE = """    def train(self, mode=True):
        super().train(mode)
        if not mode and not self.folded:
            self.w2.weight.data *= 0.5
            self.folded = True
        return self

"""
DRAWN = '        self.register_buffer("noise", torch.randn(config.width), persistent=False)\n'

CASES = {
    "weights folded by eval": (
        "when `train()` and `eval()`",
        [(MADE, f"{MADE}        self.folded = False\n"), (EXPAND, FOLD + EXPAND)],
    ),
    "weights folded by the first eval": (
        "when `train()` and `eval()`",
        [(MADE, f"{MADE}        self.folded = False\n"), (EXPAND, ONCE + EXPAND)],
    ),
    "weights changed while loading": ("without it", [(MODEL, MODEL + LOAD)]),
    "weights normed by a hook": (
        "computed from parameters while the model is built",
        [(MADE, f"{MADE}        self.w3 = nn.utils.weight_norm(self.w3)\n")],
    ),
    "buffers drawn": (
        "drawn anew",
        [(MADE, MADE + DRAWN), (EXPAND, EXPAND.replace("self.w1(stream)", "self.w1(stream + self.noise)"))],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_refused(tmp_path: Path, case: str) -> None:
    told, changes = CASES[case]
    with pytest.raises(RefusedError) as refused:
        decide(mutant(tmp_path, *changes))
    no = refused.value.refusals[0]
    assert told in no.found
    assert no.place is not None
    assert no.place.file.endswith("modeling_plain.py")


def test_a_branch_on_the_usual_attention(tmp_path: Path) -> None:
    """Authors load a model without saying which attention; transformers takes its own then, not the eager one."""
    line = "        query = turned(query, positions, self.config.theta)\n"
    usual = f'{line}        if self.config._attn_implementation == "sdpa":\n            query = query * 1.5\n'
    with pytest.raises(RefusedError, match="where its attention is called `sdpa`"):
        decide(mutant(tmp_path, (line, usual)))
