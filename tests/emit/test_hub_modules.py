"""Code from the Hub is imported under names that hold a hash, which an import statement cannot spell."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from hfspeed.emit import emitted
from hfspeed.plan import Forward, Plan, Wrapper

MODULE = "hub_models.tiny.7f00.modeling_tiny"
SOURCE = """
import math
from collections import Counter as Tally

def twice(x):
    return 2 * x

class Block:
    def forward(self, x):
        return self.a(x)
"""
TEXT = """
def forward(self, x):
    return Tally([twice(x), math.floor(x)])
"""


def test_a_module_whose_name_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path.joinpath(*MODULE.split(".")[:-1])
    folder.mkdir(parents=True)
    (folder / "modeling_tiny.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    author = importlib.import_module(MODULE)
    forward = Forward("Block", MODULE, "Block", TEXT, ("a -> b",), (), ())
    wrapper = Wrapper("model", ("input_ids",), "lm_head")
    plan = Plan("TinyForCausalLM", MODULE, 8, (), (), (), (forward,), wrapper, None, False)

    made = emitted(plan, tmp_path / "emitted")

    assert issubclass(made.Block, author.Block)
    assert made.Block().forward(3.5) == {7.0: 1, 3: 1}
    text = Path(made.__file__ or "").read_text("utf-8")
    assert f'author = author_module("{MODULE}")' in text
    assert "author.twice(x)" in text
    for name in [name for name in sys.modules if name.startswith("hub_models")]:
        monkeypatch.delitem(sys.modules, name)
