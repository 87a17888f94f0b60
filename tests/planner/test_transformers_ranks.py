"""What is written into a configuration is what transformers takes: two processes of gloo, forward and backward."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hfspeed.lint.disk import Disk
from hfspeed.planner.load import build, load, randomise
from hfspeed.planner.looked import look
from hfspeed.planner.styled import derive
from hfspeed.planner.written_plans import rewritten

HERE = Path(__file__).parent
EXAMPLES = HERE.parent.parent / "examples"


@pytest.mark.slow
def test_transformers_splits_a_model_by_the_plans_that_were_written(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    shutil.copytree(EXAMPLES / "plain", folder)
    seen = look(load(str(folder), trust_remote_code=True))
    derived = derive(seen)
    made = rewritten(seen, derived, Disk().text)
    made.file.write_text(made.after, "utf-8")
    subject = load(str(folder), trust_remote_code=True)
    model = build(subject.model_class, subject.config, device="cpu", dtype=torch.float64, interface=False)
    randomise(model)
    model.save_pretrained(folder)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
    done = subprocess.run(
        [*command, "--standalone", str(HERE / "ranks_of_transformers.py"), str(folder)],
        capture_output=True, text=True, timeout=300, check=False, env=None,
    )  # fmt: skip
    told = [line.split() for line in done.stdout.splitlines() if line.startswith("RANK")]
    assert len(told) == 2, done.stderr[-3000:]
    layers = model.config.num_hidden_layers
    cut = sum(style in ("colwise", "rowwise") for style in derived.plans.tp.values()) * layers
    for _, _, split, far in told:
        assert int(split) >= cut
        assert float(far) < 1e-9
