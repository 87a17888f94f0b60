"""Files at random through the command itself: it ends, in time, with 0 or 1, and says nothing of itself.

A thousand files; ``make fuzz`` takes a hundred thousand, and HFSPEED_FUZZ=20000:40000 some of them.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from hfspeed.lint.rules import rules

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
FIRST, LAST = map(int, f"0:{os.environ.get('HFSPEED_FUZZ', '1000')}".split(":")[-2:])
BATCH = 500
LINES = 120
PIECES = [
    *("(", ")", "[", "]", "{", "}", ":", ",", "'''", '"', "\\\n", "\t", "\f", "\x00", "#", "\ufeff", "\u2028", "é"),
    *("    ", "\n", "self", "self.", "**kwargs", "*", "lambda: ", "await ", "yield ", ":=", "@", "None", "1e999"),
    *("# noqa: HFS101\n", "# hfspeed: ignore[", "# hfspeed: disable\n", "# hfspeed: noqa\n", "class A(A):\n"),
    *("def forward(self, x, **kwargs):\n", "if self.training:\n", "match x:\n    case _:\n        pass\n", "-" * 50),
    *("torch.softmax(q @ k.mT, -1) @ v", "ALL_ATTENTION_FUNCTIONS", "F.linear(x, self.q_proj.weight)", "(" * 200),
]  # fmt: skip
WORD = re.compile(r"\w+")


def seeds() -> list[str]:
    """Examples of rules, and stretches of what ships with transformers."""
    found = [text for rule in rules() for text in (rule.bad.text, rule.good.text)]
    spec = find_spec("transformers")
    if spec is not None and spec.origin is not None:
        for file in sorted((Path(spec.origin).parent / "models").glob("*/modeling_*.py"))[::5]:
            lines = file.read_text("utf-8").split("\n")
            found += ["\n".join(lines[start : start + LINES]) for start in range(0, min(len(lines), 1500), 300)]
    return found


def mutated(chance: random.Random, texts: list[str]) -> bytes:
    """One of the texts with pieces cut, doubled, renamed and put in; now and then with bytes that are no text."""
    text = chance.choice(texts)
    for _ in range(chance.randint(1, 8)):
        start = chance.randint(0, len(text))
        end = min(len(text), start + chance.choice((0, 1, 5, 40, 400)))
        kind = chance.randrange(5)
        if kind == 0:
            text = text[:start] + text[end:]
        elif kind == 1:
            text = text[:end] + text[start:end] + text[end:]
        elif kind == 2:
            text = text[:start] + chance.choice(PIECES) + text[end if chance.random() < 0.3 else start :]
        elif kind == 3:
            other = chance.choice(texts)
            text = text[:start] + other[: chance.randint(0, len(other))] + text[end:]
        elif words := WORD.findall(text):
            old, new = chance.choice(words), chance.choice(words)
            text = re.sub(rf"\b{old}\b", new, text, count=chance.choice((0, 1)))
    content = text.encode("utf-8", "surrogatepass")
    if chance.random() < 0.02:
        content = content[: len(content) // 2] + bytes(chance.randrange(256) for _ in range(20))
    return content


@pytest.mark.timeout(max(600, (LAST - FIRST) // 20))
def test_files_at_random(tmp_path: Path) -> None:
    texts = seeds()
    for number in range(FIRST, LAST, BATCH):
        folder = tmp_path / "batch"
        folder.mkdir()
        chance = random.Random(number)
        for index in range(min(BATCH, LAST - number)):
            (folder / f"modeling_{index}.py").write_bytes(mutated(chance, texts))
        for flags in ([], ["--preview", "--fix", "--unsafe-fixes"]):
            start = time.monotonic()
            run = subprocess.run(
                [sys.executable, "-m", "hfspeed", "check", "--static", "--isolated", "--no-cache",
                 "--output-format", "json", *flags, str(folder)],
                cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False,
                timeout=300,
            )  # fmt: skip
            told = f"batch {number} with {flags}: {run.returncode} after {time.monotonic() - start:.0f} s"
            assert run.returncode in (0, 1), f"{told}\n{run.stderr.decode(errors='replace')[-2000:]}"
            assert b"Traceback" not in run.stderr, told
            assert b"report it" not in run.stderr, told
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
