"""What is kept is what would be found; what cannot be read is found again."""

from __future__ import annotations

from pathlib import Path

import pytest

from hfspeed.lint import scans as module
from hfspeed.lint.cache import Cache
from hfspeed.lint.disk import Disk
from hfspeed.lint.engine import read, scan
from hfspeed.lint.scans import scans

BAD = (
    "class A(nn.Module):\n    def forward(self, q, cache):\n        return torch.softmax(q @ q, -1) @ q  # noqa: E501\n"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "m.py").write_text(BAD)
    return tmp_path / "m.py"


def entries(cache: Cache) -> list[Path]:
    assert cache.folder is not None
    return [entry for entry in cache.folder.rglob("*") if entry.is_file() and len(entry.name) > 30]


def test_what_comes_back_is_what_was_put(file: Path) -> None:
    cache = Cache(file.parent / "cache")
    assert cache.get(file) is None
    found = scan(read(file))
    cache.put(file, found)
    assert cache.get(file) == found
    assert {entry.name for entry in (file.parent / "cache").iterdir()} >= {"CACHEDIR.TAG", ".gitignore"}
    moved = file.parent / "elsewhere" / "m.py"
    moved.parent.mkdir()
    file.rename(moved)
    assert cache.get(moved) == scan(read(moved))
    moved.write_text(BAD + "\n")
    assert cache.get(moved) is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"findings": [{}], "directives": []}', b"\xff\xfe", b"[" * 9999]
)
def test_a_corrupt_entry_is_a_miss(content: bytes, file: Path) -> None:
    cache = Cache(file.parent / "cache")
    cache.put(file, scan(read(file)))
    (entry,) = entries(cache)
    entry.write_bytes(content)
    assert cache.get(file) is None
    assert scans([file], Disk(), cache)[file] == scan(read(file))
    assert cache.get(file) == scan(read(file))


def test_a_neighbour_that_a_rule_looks_at_counts(file: Path) -> None:
    cache = Cache(file.parent / "cache")
    file.write_text("import hfspeed\n")
    assert scans([file], Disk(), cache)[file].findings == ()
    (file.parent / "config.json").write_text('{"auto_map": {"AutoModel": "m.A"}}')
    assert scans([file], Disk(), cache)[file].findings != ()


def test_a_folder_that_cannot_be_written_is_no_harm(file: Path) -> None:
    (file.parent / "cache").write_text("a file")
    assert scans([file], Disk(), Cache(file.parent / "cache"))[file].findings
    assert scans([file], Disk(), Cache(None))[file].findings


def test_many_files_are_read_side_by_side(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [file.with_name(f"m{number}.py") for number in range(9)]
    for one in files:
        one.write_text(BAD)
    alone = scans(files, Disk(), Cache(None))
    monkeypatch.setattr(module, "MANY", 2)
    monkeypatch.setattr(module, "BATCH", 2)
    assert scans(files, Disk(), Cache(None)) == alone
    assert list(alone) == files
