"""The deep check: the planner runs in a child process, and its refusals come back as findings.

The child imports and runs the author's code. It may hang, print, exit, crash or eat memory; none of that
reaches the linter, which waits for a while, reads one JSON answer, and tells whatever went wrong.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from hfspeed.errors import UsageError
from hfspeed.lint.engine import read
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Finding
from hfspeed.lint.rule import lent
from hfspeed.lint.rules import by_reason, find
from hfspeed.lint.shown import line
from hfspeed.refusal import Place, Reason, Refusal

CHILD = ("-m", "hfspeed.planner.findings")
ANSWER_LIMIT = 16 * 2**20


@dataclass(frozen=True)
class Limits:
    """How long the child may run, in seconds, and how much memory it may use, in GiB."""

    seconds: float = 300
    memory: float = 16


@dataclass(frozen=True)
class Answer:
    """What the child said.

    Attributes:
        file: the modeling file it looked at.
        refusals: what was refused.
        error: why there is no plan.
        usage: whether that is the request's fault.
        refused: whether the refusals keep the model from being served.
        classes: the names of the classes that a plan is about.
    """

    file: str | None
    refusals: tuple[Refusal, ...]
    error: str | None
    usage: bool = False
    refused: bool = False
    classes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Planned:
    """What came of planning a model.

    Attributes:
        file: the file that defines it.
        findings: every refusal, in order.
        served: whether there is a plan.
        classes: the names of the classes that it is about.
    """

    file: Path | None
    findings: list[Finding]
    served: bool = False
    classes: frozenset[str] = frozenset()


def deep(model: str, *, trust_remote_code: bool, limits: Limits) -> Planned:
    """Plan ``model`` in a child process.

    Raises:
        UsageError: there is no such model, or its code may not be run.
    """
    return understood(ask(model, trust_remote_code=trust_remote_code, limits=limits), model)


def understood(answer: Answer, model: str) -> Planned:
    """What the child said of ``model``, as findings; every refusal in the words of its rule.

    Raises:
        UsageError: it said that there is no such model, or that its code may not be run.
    """
    if answer.usage:
        raise UsageError(answer.error or model)
    file = _as_named(answer.file, model) if answer.file else None
    if answer.error is not None:
        rule = find("HFS901")
        assert rule is not None
        return Planned(file, [rule.told(_ended(_home(file, model, "")), error=answer.error)])
    told: dict[tuple[str, Place, str], Finding] = {}
    for refusal in answer.refusals:
        place = refusal.place or _home(file, model, refusal.module)
        place = _ended(replace(place, file=str(_as_named(place.file, model))))
        finding = lent(by_reason()[refusal.reason], refusal, place, fatal=answer.refused)
        # Every layer of a kind refuses alike; one of them is told.
        told.setdefault((finding.code, finding.place, finding.message), finding)
    found = sorted(told.values(), key=lambda finding: finding.order)
    return Planned(file, found, not answer.refused, answer.classes)


def _as_named(file: str, model: str) -> Path:
    """``file`` as the user would name it: as it was given, or from the current folder, else in full."""
    path = Path(file)
    if Path(model).exists() and Path(model).resolve() == path.resolve():
        return Path(model)
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _ended(place: Place) -> Place:
    """With an end: what names none goes to the end of its line."""
    if place.end_line is not None:
        return place
    length = len(line(place.file, place.line).rstrip())
    return replace(place, end_line=place.line, end_column=max(length + 1, place.column))


def _home(file: Path | None, model: str, module: str) -> Place:
    """Where to tell what has no line of its own: at the class ``module``, else at the causal language model."""
    path = file or Path(model)
    facts = read(path) if path.is_file() else None
    if not isinstance(facts, Facts):
        return Place(str(path), 1)
    named = facts.classes.get(module.rsplit(".", 1)[-1])
    found = [named] if named else facts.causal
    return facts.place(found[0].node) if found else Place(str(path), 1)


def ask(model: str, *, trust_remote_code: bool, limits: Limits) -> Answer:
    """Run the child on ``model`` and read its answer; what went wrong instead is the answer's error."""
    command = [sys.executable, *CHILD, model, "--memory", str(limits.memory)]
    command += ["--trust-remote-code"] if trust_remote_code else []
    child = subprocess.Popen(  # noqa: S603  our own interpreter and module
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    assert child.stdout is not None
    assert child.stderr is not None
    said, complained = _Tail(child.stdout, ANSWER_LIMIT), _Tail(child.stderr, 4096)
    try:
        child.wait(limits.seconds)
    except subprocess.TimeoutExpired:
        return Answer(None, (), f"it took longer than {limits.seconds:g} seconds")
    finally:
        _end(child)
    answer = said.text()
    if child.returncode == 0 and answer:
        return heard(answer)
    return Answer(None, (), _last_words(child.returncode, complained.text()))


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child and what it has started; they share a session of their own."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def heard(text: str) -> Answer:
    """The child's answer out of what it wrote."""
    try:
        raw: dict[str, Any] = json.loads(text)
        refusals = tuple(_refusal(one) for one in raw["refusals"])
        return Answer(
            raw["file"], refusals, raw["error"], raw["usage"], bool(raw["refused"]), frozenset(raw["classes"])
        )
    except (ValueError, KeyError, TypeError) as error:
        return Answer(None, (), f"its answer cannot be read: {error!r}")


def _refusal(raw: dict[str, Any]) -> Refusal:
    place = Place(**raw["place"]) if raw["place"] else None
    return Refusal(**{**raw, "reason": Reason(raw["reason"]), "place": place})


def _last_words(code: int, complaint: str) -> str:
    lines = [line for line in complaint.splitlines() if line.strip()]
    if code < 0:
        how = f"it was ended by {signal.Signals(-code).name}"
    else:
        how = f"it ended with {code}" if code else "it ended without an answer"
    return f"{how}: {lines[-1].strip()}" if lines else how


class _Tail:
    """Reads a pipe to its end in a thread and keeps the last ``limit`` bytes, so that no output fills memory."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self.limit = limit
        self.chunks: deque[bytes] = deque()
        self.kept = 0
        self.thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self.thread.start()

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            while chunk := os.read(stream.fileno(), 65536):
                self.chunks.append(chunk)
                self.kept += len(chunk)
                while self.kept - len(self.chunks[0]) >= self.limit:
                    self.kept -= len(self.chunks.popleft())

    def text(self) -> str:
        self.thread.join(timeout=5)  # something that left the session may still hold the pipe
        return b"".join(self.chunks)[-self.limit :].decode(errors="replace")
