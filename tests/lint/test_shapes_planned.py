"""Code shapes that users stumbled over, in a whole model that is planned: the right rule, the right line, no other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hfspeed.lint.deep import Planned, heard, understood
from hfspeed.lint.disk import Disk
from hfspeed.lint.engine import read, scan
from hfspeed.lint.mend import mend
from hfspeed.lint.settings import Settings
from hfspeed.lint.settled import settled

pytest.importorskip("transformers")
pytestmark = pytest.mark.slow
PLAIN = Path(__file__).parents[2] / "examples" / "plain"

PROJECTIONS = ("self.wq(stream)", "self.wk(stream)", "self.wv(stream)")
RUN = "mixed, _ = run(self, query, key, value, mask, scaling=size**-0.5, **kwargs)"
LOOK_UP = "run = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, slow_attention)\n        "
MIXER = "class Mixer(nn.Module):"
FORWARD = "    def forward(self, stream, positions, mask=None, memory=None, **kwargs):\n        batch"
BY_HAND = """\
key = key.repeat_interleave(self.num_key_value_groups, 1)
        value = value.repeat_interleave(self.num_key_value_groups, 1)
        scores = torch.matmul(query, key.transpose(2, 3)) * size**-0.5
        if mask is not None:
            scores = scores + mask
        weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
        mixed = torch.matmul(weights, value).transpose(1, 2)"""
FLAGS = "    _supports_sdpa = True\n    _supports_attention_backend = True\n"

Change = dict[str, str]
HELPER: Change = {one: one.replace("self.", "_call(self.").replace("(stream)", ", stream)") for one in PROJECTIONS}
HELPER[MIXER] = f"def _call(layer, x):\n    return layer(x)\n\n\n{MIXER}"
METHOD: Change = {
    "value = self.wv(stream)": "q, k, v = self._qkv(stream)\n        value = v",
    "self.wq(stream)": "q", "self.wk(stream)": "k",
    FORWARD: f"    def _qkv(self, x):\n        return self.wq(x), self.wk(x), self.wv(x)\n\n{FORWARD}",
}  # fmt: skip
GENERATOR: Change = {
    "value = self.wv(stream)": "q, k, v = (one(stream) for one in (self.wq, self.wk, self.wv))\n        value = v",
    "self.wq(stream)": "q", "self.wk(stream)": "k",
}  # fmt: skip
ALONE: Change = {LOOK_UP: "", RUN: BY_HAND, FLAGS: ""}
SHAPE = "        batch, tokens, _ = stream.shape\n        size"
ALIAS: Change = {one: one.replace("self", "mixer") for one in PROJECTIONS} | {SHAPE: f"        mixer = self\n{SHAPE}"}
LOST = "stream = self.mixer(self.before(stream), positions, mask=mask, memory=memory) + stream"


def changed(folder: Path, changes: Change) -> Path:
    """A copy of the example with some of its text changed; the modeling file."""
    shutil.copytree(PLAIN, folder)
    file = folder / "modeling_plain.py"
    text = file.read_text()
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    file.write_text(text)
    return file


def told(file: Path) -> tuple[Planned, list[tuple[str, str, str]]]:
    """What planning ``file`` gives, and every finding: code, severity, and what stands on its line."""
    from hfspeed.planner.findings import findings

    planned = understood(heard(json.dumps(findings(str(file.parent), trust_remote_code=True))), str(file.parent))
    kept, news = settled(planned, scan(read(file)), file)
    lines = file.read_text().split("\n")
    found = [*kept.findings, *news]
    return planned, [(one.code, str(one.severity), lines[one.place.line - 1].strip()) for one in found]


@pytest.mark.parametrize(
    ("changes", "served", "expected"),
    [
        ({}, True, []),
        ({"self.wq(stream)": "self.wq(input=stream)"}, True, []),
        (ALIAS, True, []),
        (METHOD, True, [("HFS209", "warning", "q, k, v = self._qkv(stream)")]),
        (GENERATOR, True, [("HFS209", "warning", "q, k, v = (one(stream) for one in (self.wq, self.wk, self.wv))")]),
        (ALONE, True, [("HFS101", "info", "weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)")]),
        ({"mask=mask, memory=memory, **kwargs) + stream": "mask=mask, memory=memory) + stream"}, True,
         [("HFS103", "warning", LOST)]),
        ({RUN: RUN.replace("scaling", "temperature=2.0, scaling")}, False,
         [("HFS105", "error", RUN.replace("scaling", "temperature=2.0, scaling"))]),
        ({"is_causal = True": "is_causal = False"}, False, [("HFS106", "error", RUN)]),
        ({"y = y / torch.sqrt((y * y).mean(dim=-1, keepdim=True) + self.epsilon)":
          "y = y / (torch.sqrt((y * y).mean(dim=-1, keepdim=True)) + self.epsilon)"}, True,
         [("HFS216", "info", "def forward(self, x):")]),
    ],
    ids=["as it is", "by keyword", "alias", "method", "generator", "by hand", "keywords lost", "unknown keyword",
         "not causal", "another norm"],
)  # fmt: skip
def test_the_right_rule_at_the_right_line(
    changes: Change, served: bool, expected: list[tuple[str, str, str]], tmp_path: Path
) -> None:
    planned, found = told(changed(tmp_path / "model", changes))
    assert planned.served is served
    assert found == expected


@pytest.mark.parametrize("changes", [HELPER, METHOD, ALONE], ids=["helper", "method", "by hand"])
def test_what_was_mended_is_served_without_a_finding(changes: Change, tmp_path: Path) -> None:
    file = changed(tmp_path / "model", changes)
    disk = Disk()
    assert mend(file, disk, Settings(unsafe_fixes=True)).findings
    disk.write()
    planned, found = told(file)
    assert planned.served
    assert found == []
