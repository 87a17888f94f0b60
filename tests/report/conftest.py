"""Pages of two models: an example as it is, and one in which something was refused and everything is hostile."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from hfspeed.plan.holdings import holdings
from hfspeed.plan.places import Layout
from hfspeed.plan.sizes import sizes
from hfspeed.planner.load import load
from hfspeed.planner.serve import planned
from hfspeed.planner.sources import sources
from hfspeed.refusal import Place, Reason, Refusal
from hfspeed.report.page import Subject, page

PLAIN = Path(__file__).resolve().parents[2] / "examples" / "plain"
HOSTILE = "</style></code><script>document.title='owned'</script><img src=x onerror=alert(1)>\"'`{{ 7*7 }}"


def about(folder: Path, name: str, layout: Layout) -> Subject:
    subject = load(str(folder), trust_remote_code=True)
    plan, _ = planned(subject)
    held = holdings(plan, sources(subject, plan), layout)
    return Subject(name, plan, held, sizes(plan), f"hfspeed report {name}", {"hfspeed": "1.2.3"})


@pytest.fixture(scope="session")
def subject() -> Subject:
    return about(PLAIN, "examples/plain", Layout(2, 2))


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """An author's file, names and refusals that try to get out of the text."""
    folder = tmp_path_factory.mktemp("hostile") / "model"
    shutil.copytree(PLAIN, folder, ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "modeling_plain.py"
    text = file.read_text("utf-8")
    line = "        gated = passed * opened\n"
    assert text.count(line) == 1
    file.write_text(text.replace(line, f"{line}        # {HOSTILE}\n"), "utf-8")
    made = about(folder, HOSTILE, Layout())
    number = text[: text.index(line)].count("\n") + 2
    refusal = Refusal("gated", Reason.INPUTS_DIFFER, HOSTILE, HOSTILE, Place(str(file), number), help=HOSTILE)
    plan = dataclasses.replace(made.plan.with_refusals(refusal), architecture=HOSTILE)
    return dataclasses.replace(made, plan=plan, command=HOSTILE)


@pytest.fixture(scope="session")
def html(subject: Subject) -> str:
    return page(subject)
