"""Files are found as git would find them."""

from __future__ import annotations

from pathlib import Path

from hfspeed.lint.config import Configuration
from hfspeed.lint.discover import files_in


def lay(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def found(folder: Path, **given: object) -> list[str]:
    files = files_in(folder, Configuration({key.replace("_", "-"): value for key, value in given.items()}))
    return [file.relative_to(folder).as_posix() for file in files]


def test_gitignore_is_heeded_at_every_depth(tmp_path: Path) -> None:
    lay(tmp_path, ".git/HEAD", "a.py", "gen/b.py", "gen/keep.py", "src/c.py", "src/gen/d.py", "out.py")
    (tmp_path / ".gitignore").write_text("gen/*\n/out.py\n")
    (tmp_path / "gen" / ".gitignore").write_text("!keep.py\n")
    assert found(tmp_path) == [
        "a.py", "gen/keep.py", "src/c.py", "src/gen/d.py",
    ]  # fmt: skip
    assert found(tmp_path / "src", respect_gitignore=False) == ["c.py", "gen/d.py"]
    assert "out.py" in found(tmp_path, respect_gitignore=False)
    (tmp_path / ".gitignore").write_text("d.py\n")
    assert found(tmp_path / "src") == ["c.py"]  # a .gitignore above the folder that was named


def test_patterns_leave_out(tmp_path: Path) -> None:
    lay(tmp_path, "a.py", "build/b.py", "old/c.py", "old/d.py")
    assert found(tmp_path) == ["a.py", "old/c.py", "old/d.py"]
    (tmp_path / "hfspeed.toml").write_text('extend-exclude = ["old/c.py"]\n')
    assert found(tmp_path) == ["a.py", "old/d.py"]
    assert found(tmp_path, extend_exclude=("old/d.py",)) == ["a.py"]
    assert found(tmp_path, exclude=("a.py",)) == ["build/b.py", "old/d.py"]


def test_what_is_named_is_looked_at_unless_forced(tmp_path: Path) -> None:
    lay(tmp_path, "build/b.py")
    named = tmp_path / "build" / "b.py"
    (tmp_path / "hfspeed.toml").touch()
    assert files_in(named) == [named]
    assert files_in(tmp_path / "build") == [named]  # also what lies below a folder that was named
    lay(tmp_path, "build/lib/c.py", "build/lib/build/d.py", "build/.hidden/e.py")
    assert files_in(tmp_path / "build" / "lib") == [tmp_path / "build" / "lib" / "c.py"]
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("build/\n")
    assert files_in(tmp_path / "build" / "lib") == [tmp_path / "build" / "lib" / "c.py"]
    assert files_in(tmp_path) == []
    assert files_in(named, Configuration({"force-exclude": True})) == []
    assert files_in(tmp_path / "build", Configuration({"force-exclude": True})) == []
