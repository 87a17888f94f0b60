"""``plan`` prints the canonical text or JSON on stdout, and nothing else."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from hfspeed.cli.app import main
from hfspeed.errors import RefusedError
from hfspeed.plan import json as plan_json
from hfspeed.plan import text
from hfspeed.plan.tensors import Sources, plain
from hfspeed.refusal import Reason, Refusal

LITERAL = Path(__file__).parent.parent / "plan" / "conftest.py"


@pytest.fixture(scope="module")
def plan():
    spec = importlib.util.spec_from_file_location("literal_plan", LITERAL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.lawful()


@pytest.fixture(autouse=True)
def planner(plan, monkeypatch):
    pytest.importorskip("transformers")

    def planned(name):
        if name == "refused":
            raise RefusedError(name, (Refusal("attention", Reason.NO_INTERFACE, "no call", "m.attn"),))
        return plan, None

    def sources(name, plan, dtype):
        tensors = {one.source: plain((8,), "float32") for one in plan.weights}
        return Sources(tensors, "float32" if dtype == "auto" else dtype)

    monkeypatch.setattr("hfspeed.planner.load.load", lambda name, *, trust_remote_code: name)
    monkeypatch.setattr("hfspeed.planner.serve.planned", planned)
    monkeypatch.setattr("hfspeed.planner.sources.sources", sources)
    monkeypatch.setattr("hfspeed.planner.sources.on_disk", lambda subject: {})


def _run(capsys, *arguments):
    with pytest.raises(SystemExit) as exited:
        main(["plan", *arguments])
    shown = capsys.readouterr()
    return exited.value.code or 0, shown.out, shown.err


def test_text(plan, capsys):
    code, out, err = _run(capsys, "some/model")
    assert (code, out.partition("\nholds")[0], err) == (0, text.render(plan), "")
    code, out, err = _run(capsys, "some/model", "--tp", "4", "--pp", "2")
    assert (code, out.partition("\nholds")[0], err) == (0, text.render(plan, ranks=4, stages=2), "")
    assert "\n  1      0-3    2-3 " in out
    assert "--tp 1, 2, 4 (up to 64 looked at)\n    model.layers.[0-3].self_attn: 4 heads, 2 key heads" in out


def test_json(plan, capsys):
    code, out, _ = _run(capsys, "some/model", "--format", "json", "--tp", "2", "--dtype", "bfloat16")
    assert code == 0
    assert plan_json.loads(out) == plan
    holds = json.loads(out)["holds"]
    assert (holds["ranks"], holds["dtype"], holds["possible"]["pp"]["able"]) == (2, "bfloat16", [1, 2, 3, 4])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("some/model", "--tp", "3"), "--tp 3 --pp 1: TinyForCausalLM cannot be laid out so:\n  model.layers"),
        (("some/model", "--pp", "9"), "model.layers has 4 layers, too few for 9 stages"),
        (("some/model", "--tp", "0"), "Error"),
        (("some/model", "--ep", "3"), "--ep 3: TinyForCausalLM has no experts that can be spread"),
        (("some/model", "--format", "yaml"), "yaml"),
        (("refused",), "m.attn: no call (no-interface)"),
    ],
)
def test_what_cannot_be_shown(capsys, arguments, told):
    code, out, err = _run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert told in err
