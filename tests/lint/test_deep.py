"""Whatever the child does, the linter gets an answer or a reason, in bounded time."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from hfspeed.errors import UsageError
from hfspeed.lint import deep as module
from hfspeed.lint.deep import Limits, ask, deep
from hfspeed.lint.finding import Severity
from hfspeed.lint.run import Request, run
from hfspeed.refusal import Reason

FAST = Limits(seconds=20, memory=0)
PLACE = {"file": "m.py", "line": 2, "column": 1, "end_line": None, "end_column": None}
REFUSAL: dict[str, Any] = {
    "wanted": "gated", "reason": "inputs-differ", "found": "`a` is not `b`", "module": "model.layers.0.mlp",
    "place": PLACE, "near": 0, "help": "",
}  # fmt: skip


def child(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(module, "CHILD", ("-c", program))


def answering(
    monkeypatch: pytest.MonkeyPatch,
    *refusals: dict[str, Any],
    file: str | None = "m.py",
    refused: bool = False,
    classes: tuple[str, ...] = (),
) -> None:
    said = {"file": file, "refusals": refusals, "error": None, "usage": False, "refused": refused, "classes": classes}
    answer = json.dumps(said)
    child(monkeypatch, f"print({answer!r})")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import sys; print('half of it'); sys.exit(3)", "it ended with 3"),
        ("raise RuntimeError('no such layer')", "it ended with 1: RuntimeError: no such layer"),
        ("import os; os.kill(os.getpid(), 9)", "it was ended by SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "it was ended by SIGSEGV"),
        ("import os; os._exit(0)", "it ended without an answer"),
        ("print('hello')", "its answer cannot be read"),
        ('print(\'{"file": null, "refusals": [{}], "error": null, "usage": false}\')', "its answer cannot be read"),
        ("print('x' * 50_000_000)", "its answer cannot be read"),
        ("import sys; sys.stderr.write('y' * 50_000_000); sys.exit(1)", "it ended with 1: yyy"),
    ],
)
def test_a_child_that_fails_is_told(program: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, program)
    answer = ask("m", trust_remote_code=False, limits=FAST)
    assert words in (answer.error or "")
    assert len(answer.error or "") < 5000


def test_a_child_that_hangs_is_ended_with_all_it_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    child(
        monkeypatch,
        "import subprocess, sys, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(p.pid))\n"
        "time.sleep(60)\n",
    )
    start = time.monotonic()
    answer = ask("m", trust_remote_code=False, limits=Limits(seconds=2, memory=0))
    assert answer.error == "it took longer than 2 seconds"
    assert time.monotonic() - start < 15
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if not _runs(pid):
            break
        time.sleep(0.05)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False


def test_a_refusal_is_told_in_its_rules_words(monkeypatch: pytest.MonkeyPatch) -> None:
    other = {**REFUSAL, "module": "model.layers.1.mlp"}
    answering(monkeypatch, REFUSAL, other)
    planned = deep("m.py", trust_remote_code=False, limits=FAST)
    (finding,) = planned.findings
    assert planned.served
    assert (finding.place.end_line, finding.place.end_column) == (2, 1)
    assert (planned.file, finding.code, finding.place.line) == (Path("m.py"), "HFS205", 2)
    assert finding.message == "`a` is not `b`"
    assert finding.cost == "the projections stay separate GEMMs in `model.layers.0.mlp`"


SOURCE = """\
class Block(nn.Module):
    pass

class MForCausalLM(PreTrainedModel):
    pass
"""
BY_HAND = """\
class MForCausalLM(PreTrainedModel):
    def forward(self, q, cache):
        return torch.softmax(q @ q, -1) @ q
"""


def test_without_a_place_it_is_told_at_the_class(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text(SOURCE)
    answering(
        monkeypatch,
        {**REFUSAL, "place": None, "module": "Block"},
        {**REFUSAL, "place": None, "found": "y"},
        file=str(file),
    )
    found = deep(str(file), trust_remote_code=False, limits=FAST).findings
    assert [(finding.place.line, finding.message) for finding in found] == [(1, "`a` is not `b`"), (4, "y")]


def test_what_the_author_silenced_stays_silent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text(SOURCE.replace("    pass\n", "    pass  # noqa: HFS205\n", 1))
    answering(monkeypatch, {**REFUSAL, "place": {**PLACE, "file": str(file)}}, file=str(file))
    assert run(Request((str(file),), planned=True, limits=FAST)).findings == []
    file.write_text(SOURCE)
    assert [finding.code for finding in run(Request((str(file),), planned=True, limits=FAST)).findings] == ["HFS205"]


def test_a_folder_with_its_own_code_is_only_read_without_trust(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "modeling_m.py").write_text(SOURCE)
    (tmp_path / "config.json").write_text('{"auto_map": {"AutoModel": "modeling_m.MForCausalLM"}}')
    child(monkeypatch, f"open({str(tmp_path / 'ran')!r}, 'w')")
    outcome = run(Request((str(tmp_path),), planned=True, limits=FAST))
    assert outcome.findings == []
    assert "--trust-remote-code" in outcome.notes[0]
    assert not (tmp_path / "ran").exists()
    trusting = run(Request((str(tmp_path),), planned=True, trust_remote_code=True, limits=FAST))
    assert [finding.code for finding in trusting.findings] == ["HFS901"]
    assert (tmp_path / "ran").exists()


def test_a_folder_without_code_is_planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    answering(monkeypatch, {**REFUSAL, "place": {**PLACE, "file": "elsewhere.py"}}, file="elsewhere.py")
    outcome = run(Request((str(tmp_path),), planned=True, limits=FAST))
    assert [one.code for one in outcome.findings] == ["HFS205"]
    static = run(Request((str(tmp_path),)))
    assert (static.findings, "brings no code" in static.notes[0]) == ([], True)
    (tmp_path / "config.json").unlink()
    assert run(Request((str(tmp_path),), planned=True, limits=FAST)).notes == []


def test_static_never_starts_a_child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(SOURCE)
    child(monkeypatch, f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert run(Request((str(tmp_path),), trust_remote_code=True)).findings == []
    assert not (tmp_path / "ran").exists()


def test_a_rule_found_by_reading_is_not_told_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text(BY_HAND)
    for place, line in ((None, 3), ({**PLACE, "file": str(file), "line": 3}, 3), ({**PLACE, "file": str(file)}, 2)):
        raw = {**REFUSAL, "reason": "no-interface", "place": place, "wanted": "attention"}
        answering(monkeypatch, raw, file=str(file), refused=True)
        found = run(Request((str(file),), planned=True, limits=FAST)).findings
        assert [(one.code, one.place.line, one.severity) for one in found] == [("HFS101", line, Severity.ERROR)]
        assert found[0].cost == "the model cannot be served"


@pytest.mark.parametrize(
    ("classes", "severity"), [(["MForCausalLM", "Module"], Severity.INFO), (["Other"], Severity.WARNING)]
)
def test_what_is_served_all_the_same_is_told_as_that(
    classes: list[str], severity: Severity, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "m.py"
    file.write_text(BY_HAND)
    answering(monkeypatch, file=str(file), classes=tuple(classes))
    (found,) = run(Request((str(file),), planned=True, limits=FAST)).findings
    assert (found.code, found.place.line, found.severity) == ("HFS101", 3, severity)


def test_what_reading_took_for_slow_and_the_planner_did_not_is_not_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "m.py"
    init = "    def __init__(self):\n        self.q = nn.Linear(4, 4)\n"
    file.write_text(
        f"class MForCausalLM(PreTrainedModel):\n{init}    def forward(self, x):\n        return self.q(input=x)\n"
    )
    answering(monkeypatch, file=str(file), classes=("MForCausalLM",))
    assert run(Request((str(file),), planned=True, limits=FAST)).findings == []


@pytest.mark.parametrize("reason", list(Reason))
def test_nothing_that_is_served_has_an_error_and_whatever_is_refused_has_one(
    reason: Reason, monkeypatch: pytest.MonkeyPatch
) -> None:
    for refused in (True, False):
        answering(monkeypatch, {**REFUSAL, "reason": str(reason), "wanted": "tensor"}, refused=refused)
        (found,) = deep("m.py", trust_remote_code=False, limits=FAST).findings
        assert (found.severity is Severity.ERROR) is refused
        assert ("served" in found.cost) is refused


def test_a_warning_found_by_reading_hides_no_other_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    init = "    def __init__(self):\n        self.q = nn.Linear(4, 4)\n"
    forward = "    def forward(self, x):\n        return self.q(input=x)\n"
    file.write_text("class MForCausalLM(PreTrainedModel):\n" + init + forward)
    raw = {**REFUSAL, "reason": "not-a-plain-call"}
    places = [{**PLACE, "file": str(file), "line": line} for line in (3, 5)]
    answering(monkeypatch, *({**raw, "place": place} for place in places), file=str(file))
    found = run(Request((str(file),), planned=True, limits=FAST)).findings
    assert [(finding.code, finding.place.line) for finding in found] == [("HFS211", 3), ("HFS211", 5)]


def test_what_is_no_model_is_a_wrong_request(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"refused": False, "classes": []}
    answer = json.dumps({"file": None, "refusals": [], "error": "no such model", "usage": True, **known})
    child(monkeypatch, f"print({answer!r})")
    with pytest.raises(UsageError, match="no such model"):
        deep("m", trust_remote_code=False, limits=FAST)


@pytest.mark.slow
def test_the_real_child_knows_no_such_model() -> None:
    pytest.importorskip("transformers")
    assert ask("nothing-of-this-name", trust_remote_code=False, limits=Limits(seconds=120)).usage


@pytest.mark.slow
def test_the_real_child_is_not_fooled_by_what_a_file_prints(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    file = tmp_path / "modeling_loud.py"
    answer_like = '{"file": null, "refusals": [], "error": null}'
    file.write_text(f"import os\nprint({answer_like!r})\nos.write(1, b'x')\nraise ValueError('loud')\n")
    answer = ask(str(file), trust_remote_code=False, limits=Limits(seconds=120, memory=16))
    assert "loud" in (answer.error or "")


@pytest.mark.slow
def test_the_real_child_keeps_to_its_memory(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    file = tmp_path / "modeling_large.py"
    file.write_text("x = bytearray(2**33)\n")
    answer = ask(str(file), trust_remote_code=False, limits=Limits(seconds=120, memory=4))
    assert "MemoryError" in (answer.error or "")
