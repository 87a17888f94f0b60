"""Buffers that are allocated before they have values: built with those that their author gives them, or refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from hfspeed.errors import SubjectError
from hfspeed.planner.build import build
from hfspeed.planner.decide import decide
from hfspeed.planner.load import Subject

sys.path.insert(0, str(Path(__file__).parent))
from mutants import mutant

MADE = "        self.key_scale = Scale(config.head_dim, config.epsilon)\n"
RESULT = "        return self.wo(mixed.reshape(batch, tokens, -1))"
USED = "        return self.wo((mixed * self.slope[:, None]).reshape(batch, tokens, -1))"
INIT = "            nn.init.zeros_(module.offset)\n"
FILL = "        if isinstance(module, Mixer):\n            module.slope.copy_(torch.linspace(0.5, 1.5, 4))\n"
LATER = "        self.slope[:] = torch.linspace(0.5, 1.5, 4)\n"


def subject(folder: Path, *, init: str = "", later: str = "", persistent: bool = False) -> Subject:
    made = f"        self.register_buffer('slope', torch.empty(config.heads), persistent={persistent})\n"
    return mutant(folder, (MADE, MADE + made + later), (RESULT, USED), (INIT, INIT + init))


@pytest.mark.parametrize("how", ["_init_weights", "constructor"])
def test_values_that_come_later_are_those_of_the_author(how: str, tmp_path: Path) -> None:
    made = subject(tmp_path, init=FILL) if how == "_init_weights" else subject(tmp_path, later=LATER)
    model = build(made.model_class, made.config, buffers=True)
    assert torch.equal(model.decoder.blocks[1].mixer.slope, torch.linspace(0.5, 1.5, 4))
    assert model.decoder.blocks[1].mixer.wo.weight.is_meta
    assert decide(made).proofs


def test_what_a_checkpoint_fills_has_no_value_before(tmp_path: Path) -> None:
    made = subject(tmp_path, persistent=True)
    assert build(made.model_class, made.config, buffers=True).decoder.blocks[0].mixer.slope.is_meta


def test_what_nobody_fills_is_refused_at_its_line(tmp_path: Path) -> None:
    made = subject(tmp_path)
    line = next(n for n, text in enumerate(made.file.read_text().splitlines(), 1) if "register_buffer('slope'" in text)
    with pytest.raises(SubjectError, match=rf"modeling_plain\.py:{line}: `decoder\.blocks\.0\.mixer\.slope`"):
        build(made.model_class, made.config, buffers=True)
