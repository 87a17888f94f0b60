"""What the linter, the planner and vLLM say of one shape, as it is written and as it is mended."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import shape as shapes

from hfspeed.lint.deep import Planned, heard, understood
from hfspeed.lint.disk import Disk
from hfspeed.lint.engine import read, scan
from hfspeed.lint.finding import Severity
from hfspeed.lint.mend import mend
from hfspeed.lint.settings import Settings
from hfspeed.lint.settled import settled


def told(file: Path) -> tuple[Planned, list[tuple[str, str, str]]]:
    """What planning gives, and every finding of a deep check: code, severity, and what stands on its line."""
    from hfspeed.planner.findings import findings

    planned = understood(heard(json.dumps(findings(str(file.parent), trust_remote_code=True))), str(file.parent))
    kept, news = settled(planned, scan(read(file)), file)
    lines = file.read_text("utf-8").split("\n")
    found = sorted([*kept.findings, *news], key=lambda one: one.order)
    return planned, [(one.code, str(one.severity), lines[one.place.line - 1].strip()) for one in found]


def faults(folder: Path, shape: shapes.Shape, serving: Any = None) -> list[str]:
    """What is not as it should be."""
    found = []
    file = shapes.write(folder / "before", shape)
    planned, said = told(file)
    if planned.served is not shape.served:
        why = "; ".join(one.message for one in planned.findings)
        found.append(f"served: {planned.served}: {why}")
    if set(said) != set(shape.told):  # the same line may be told of in two ways
        found.append(f"told {sorted(set(said) - set(shape.told))}, not told {sorted(set(shape.told) - set(said))}")
    after = folder / "after"
    shutil.copytree(folder / "before", after, ignore=shutil.ignore_patterns("__pycache__"))
    disk = Disk()
    done = mend(after / file.name, disk, Settings(unsafe_fixes=True))
    if done.defect:
        found.append(done.defect)
    disk.write()
    if done.findings:
        found += _mended(after / file.name, shape, said, planned)
    elif shape.mended:
        found.append("nothing was mended")
    if serving is not None and not found:
        folders = [folder / "before"] if shape.served else []
        folders += [after] if done.findings else []
        found += _answers(folders, serving)
    return found


def _mended(file: Path, shape: shapes.Shape, before: list[tuple[str, str, str]], planned: Planned) -> list[str]:
    """After the fixes it is served if it was, nothing new is found, and nothing is left where all was to go."""
    now, said = told(file)
    if planned.served and not now.served:
        return [f"mended, and not served any more: {'; '.join(one.message for one in now.findings)}"]
    left = [one for one in said if one[1] != Severity.INFO or one not in before]
    codes = {code for code, *_ in before}
    if shape.mended:
        return [f"left after mending: {left}"] if left or not now.served else []
    news = [one for one in left if one[0] not in codes]
    return [f"new after mending: {news}"] if news else []


def _answers(folders: list[Path], serving: Any) -> list[str]:
    """What vLLM answers, against the author's code in transformers; the mended one against the code as it was."""
    found = []
    for folder in folders:
        checkpoint(folder, folders[0])
        answer = serving.serve(folder, trust_remote_code=True)
        if "error" in answer:
            found.append(f"{folder.name}: {answer['error'][-300:]}")
        elif not answer["tokens"] or answer["apart"] >= serving.TOLERANCE:
            found.append(f"{folder.name}: other answers, {answer['apart']} apart")
    return found


def checkpoint(folder: Path, first: Path) -> None:
    """Weights for ``folder``, and what transformers answers with those of ``first`` and its code."""
    import torch

    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "vllm"))
    from checkpoints import PROMPTS, _greedy

    from hfspeed.planner.load import load, randomise

    if folder != first:
        for name in ("model.safetensors", "expected.json"):
            shutil.copy(first / name, folder / name)
        return
    subject = load(str(folder), trust_remote_code=True)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        # eager: the only implementation of transformers that heeds every keyword
        model = subject.model_class._from_config(subject.config, attn_implementation="eager").float().eval()
    randomise(model)
    model.save_pretrained(folder / "weights")
    shutil.move(folder / "weights" / "model.safetensors", folder)
    (folder / "expected.json").write_text(json.dumps([_greedy(model, prompt) for prompt in PROMPTS]))
