"""Emitted modules are written whole, found again by content, and behave like any other module."""

from __future__ import annotations

import inspect
import logging
import os
import pickle
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pytest

from hfspeed.emit import cache_root, digest, emitted, ensure_path, render, stem
from hfspeed.errors import CacheError
from hfspeed.plan import Forward, Plan, Wrapper

FORWARD = "def forward(self, x):\n    y = x + 1\n    return 1 / x, y"


def plan(text: str = FORWARD, name: str = "Formatter") -> Plan:
    forwards = (Forward(name, "string", "Formatter", text, ("formatter -> plus one",), (), ()),)
    return Plan("TinyForCausalLM", "string", 8, (), (), (), forwards, Wrapper("model", (), "lm_head"), None, False)


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HFSPEED_CACHE_DIR", str(tmp_path))
    assert cache_root() == tmp_path
    monkeypatch.delenv("HFSPEED_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert cache_root() == tmp_path / "user" / "hfspeed"


def test_names(tmp_path: Path) -> None:
    module = emitted(plan(), tmp_path)
    assert stem(plan()) == "tiny_for_causal_lm"
    assert module.__name__ == f"hfspeed_emitted.tiny_for_causal_lm_{digest(plan())}"
    assert Path(str(module.__file__)) == tmp_path / "hfspeed_emitted" / f"{module.__name__.split('.')[1]}.py"
    assert Path(str(module.__file__)).read_text() == render(plan())
    assert sys.modules[module.__name__] is module
    assert emitted(plan(), tmp_path) is module
    other = plan(FORWARD.replace("1", "2"))
    assert digest(other) != digest(plan())
    assert emitted(other, tmp_path) is not module


def test_source_and_traceback_lines(tmp_path: Path) -> None:
    module = emitted(plan(), tmp_path)
    assert "y = x + 1" in inspect.getsource(module.Formatter.forward)
    assert inspect.getsource(module.Formatter).startswith("class Formatter(author.Formatter):")
    try:
        module.Formatter().forward(0)
    except ZeroDivisionError as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
    assert (frame.filename, frame.line) == (module.__file__, "return 1 / x, y")


def test_pickled_by_name_for_another_process(tmp_path: Path) -> None:
    module = emitted(plan(), tmp_path)
    pickled = pickle.dumps(module.Formatter())
    program = f"""
import pickle
from pathlib import Path
from hfspeed.emit import ensure_path
ensure_path(Path({str(tmp_path)!r}))
made = pickle.loads({pickled!r})
import {module.__name__} as again
assert type(made) is again.Formatter
print(made.forward(2), __import__('hfspeed_emitted').__name__)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.stdout == "(0.5, 3) hfspeed_emitted\n", run.stderr


def test_several_processes_at_once(tmp_path: Path) -> None:
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import time
from pathlib import Path
from test_cache import plan
from hfspeed.emit import emitted
while time.time() < float(sys.argv[1]): pass
for i in range(30):
    module = emitted(plan(f"def forward(self, x):\\n    return x + {{i}} # {"x" * 20000}"), Path({str(tmp_path)!r}))
    assert module.Formatter().forward(1) == i + 1
"""
    start = str(time.time() + 2)
    runs = [
        subprocess.Popen([sys.executable, "-c", program, start], stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    for run in runs:
        _, told = run.communicate(timeout=120)
        assert run.returncode == 0, told
    files = sorted(path.name for path in (tmp_path / "hfspeed_emitted").iterdir() if path.is_file())
    assert len(files) == 30
    assert not [name for name in files if name.startswith(".")]


@pytest.mark.parametrize("damage", [b"", b"half of", b"\xff\xfe"])
def test_a_damaged_entry_is_written_again(tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    one = plan(FORWARD, f"Damaged{len(damage)}{damage[:1].hex()}")
    path = tmp_path / "hfspeed_emitted" / f"{stem(one)}_{digest(one)}.py"
    path.parent.mkdir()
    path.write_bytes(damage)
    with caplog.at_level(logging.WARNING):
        module = emitted(one, tmp_path)
    assert path.read_text() == render(one)
    assert f"{path} is not what was written there" in caplog.text
    assert getattr(module, one.forwards[0].name)().forward(1) == (1.0, 2)


def test_compiled_code_of_a_damaged_entry_is_not_trusted(tmp_path: Path) -> None:
    one = plan("def forward(self, x):\n    return 'good'", "Compiled")
    module = emitted(one, tmp_path)
    path = Path(str(module.__file__))
    right, times = path.read_text(), path.stat()
    del sys.modules[module.__name__]
    path.write_text(right.replace("good", "evil"))
    os.utime(path, (times.st_atime, times.st_mtime))
    assert (
        subprocess.run([sys.executable, "-c", _IMPORT.format(str(tmp_path), module.__name__)], check=False).returncode
        == 0
    )
    module = emitted(one, tmp_path)
    os.utime(path, (times.st_atime, times.st_mtime))
    assert module.Compiled().forward(0) == "good"
    run = subprocess.run(
        [sys.executable, "-c", _IMPORT.format(str(tmp_path), module.__name__)],
        check=True,
        capture_output=True,
        text=True,
    )
    assert run.stdout == "good\n"


_IMPORT = """
from importlib import import_module
from pathlib import Path
from hfspeed.emit import ensure_path
ensure_path(Path({!r}))
print(import_module({!r}).Compiled().forward(0))
"""


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("HFSPEED_CACHE_DIR", str(blocked))
    with pytest.raises(CacheError, match=rf"{blocked}.*set HFSPEED_CACHE_DIR to a folder that can be written"):
        emitted(plan(FORWARD, "Unwritable"))
    with pytest.raises(CacheError):
        emitted(plan(FORWARD, "Unwritable"), blocked)


def test_an_entry_in_a_folder_that_may_only_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = plan(FORWARD, "ReadOnly")
    module = emitted(one, tmp_path)
    del sys.modules[module.__name__]

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    assert emitted(one, tmp_path).ReadOnly is not module.ReadOnly
    with pytest.raises(CacheError, match="Permission denied"):
        emitted(plan(FORWARD, "New"), tmp_path)


def test_a_module_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    bad = plan("def forward(self, x=1 / 0):\n    return x", "Bad")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            emitted(bad, tmp_path)
    assert f"hfspeed_emitted.{stem(bad)}_{digest(bad)}" not in sys.modules


def test_ensure_path_does_not_repeat_itself(tmp_path: Path) -> None:
    first, again = ensure_path(tmp_path), ensure_path(tmp_path)
    assert first == again == tmp_path / "hfspeed_emitted"
    assert list(sys.modules["hfspeed_emitted"].__path__).count(str(first)) == 1
