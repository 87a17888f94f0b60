"""Tables of angles whose rates a checkpoint may hold: only rows that were made without them are taken."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from hfspeed.plan import Positions
from hfspeed.planner.draft import draft
from hfspeed.planner.load import load
from hfspeed.planner.study import study
from hfspeed.planner.tables import MOST, _limit
from hfspeed.planner.verdicts import Verdicts

HUB = Path(__file__).parents[1] / "hub" / "cache_of_its_own"


class Cached(nn.Module):
    """As older code has it: rates in the checkpoint, tables made from them when built, and again when too short."""

    def __init__(self, rows: int, persistent: bool) -> None:
        super().__init__()
        self.register_buffer("rates", 10000.0 ** -(torch.arange(8) / 8), persistent=persistent)
        self.fill(rows)

    def fill(self, rows: int) -> None:
        self.rows = rows
        self.register_buffer("cos", torch.outer(torch.arange(rows), self.rates).cos(), persistent=False)

    def forward(self, x: torch.Tensor, length: int) -> torch.Tensor:
        """``[length, 8]``."""
        if length > self.rows:
            self.fill(length)
        return self.cos[:length].to(x.dtype)


def limit(module: nn.Module) -> int:
    return _limit(module, Positions("rotary", "length", "x", counted=True))


def test_rows_that_a_checkpoint_would_change_are_not_taken() -> None:
    assert limit(Cached(96, persistent=True)) == 96


def test_without_any_in_the_checkpoint_there_is_no_end() -> None:
    assert limit(Cached(96, persistent=False).double()) == MOST


def test_rates_that_no_table_reads_are_not_loaded(tmp_path: Path) -> None:
    """Where the tables stand already, a checkpoint's rates have no place, and are no parameter of anything."""
    for file in HUB.iterdir():
        if file.suffix in {".py", ".json"}:
            (tmp_path / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    rotary = tmp_path / "rotary_holm.py"
    text = rotary.read_text(encoding="utf-8")
    begin = "        self.write(longest)\n"
    assert text.count(begin) == 1
    kept = begin + '        self.register_buffer("speed", self.speeds(longest))\n'
    rotary.write_text(text.replace(begin, kept), encoding="utf-8")
    subject = load(str(tmp_path), trust_remote_code=True)
    plan, _ = draft(study(subject.model_class, subject.config, real=False), Verdicts())
    assert [op for op in plan.ops if isinstance(op, Positions) and op.counted]
    assert not [weight for weight in plan.weights if weight.source.endswith("speed")]
