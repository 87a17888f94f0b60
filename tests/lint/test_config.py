"""Settings come from the nearest file, the command line on top, and slips of the pen are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from hfspeed.errors import UsageError
from hfspeed.lint.config import Configuration, inline, nearest
from hfspeed.lint.finding import Severity
from hfspeed.lint.rules import rules
from hfspeed.lint.settings import Settings, choose


def codes(settings: Settings, file: str) -> set[str]:
    return {rule.code for rule in settings.rules_for(settings.root / file)}


def test_the_nearest_file_holds_alone(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.hfspeed]\nselect = ["HFS1"]\nfail-on = "error"\n')
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.other]\n")
    outer = Configuration().of(inner)
    assert outer.root == tmp_path
    assert outer.select == ("HFS1",)
    assert outer.fail_on is Severity.ERROR
    (inner / "hfspeed.toml").write_text('ignore = ["HFS7"]\n')
    own = Configuration().of(inner / "m.py")
    assert (own.root, own.select, own.ignore) == (inner, (), ("HFS7",))
    assert Configuration(isolated=True).of(inner).ignore == ()
    assert Configuration(file=tmp_path / "pyproject.toml").of(inner).select == ("HFS1",)
    assert nearest(inner) == inner / "hfspeed.toml"


def test_the_command_line_comes_on_top(tmp_path: Path) -> None:
    (tmp_path / "hfspeed.toml").write_text('select = ["HFS1"]\nignore = ["HFS101"]\nextend-select = ["HFS701"]\n')
    settings = Configuration().of(tmp_path)
    attention = {rule.code for rule in rules() if rule.code.startswith("HFS1") and not rule.preview}
    assert codes(settings, "m.py") == attention - {"HFS101"} | {"HFS701"}
    chosen = Configuration({"select": ("HFS101",), "extend-select": ("HFS002",)}).of(tmp_path)
    assert codes(chosen, "m.py") == {"HFS101", "HFS701", "HFS002"}
    assert "HFS102" not in codes(Configuration({"ignore": ("HFS102",)}).of(tmp_path), "m.py")


def test_of_select_and_ignore_the_longer_one_decides() -> None:
    assert {rule.code for rule in choose(["HFS101"], ["HFS1"])} == {"HFS101"}
    assert "HFS101" not in {rule.code for rule in choose(["HFS1"], ["attention-by-hand"])}
    assert choose(["HFS1"], ["HFS1"]) == []


def test_files_have_ignores_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "hfspeed.toml").write_text('[per-file-ignores]\n"old/**" = ["HFS1"]\n"!new.py" = ["HFS204"]\n')
    settings = Configuration().of(tmp_path)
    assert "HFS101" not in codes(settings, "old/deep/m.py")
    assert "HFS101" in codes(settings, "m.py")
    assert "HFS204" in codes(settings, "new.py")
    assert "HFS204" not in codes(settings, "old.py")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("selct = []\n", "there is no setting 'selct'; did you mean select?"),
        ("extend_select = []\n", "there is no setting 'extend_select'; did you mean extend-select?"),
        ("zzz = 1\n", "choose from "),
        ('select = "HFS1"\n', "select has to be a list of strings, not 'HFS1'"),
        ("select = [1]\n", "select has to be a list of strings"),
        ('select = ["HFX"]\n', "select: no rule is called 'HFX'"),
        ('static = "yes"\n', "static has to be true or false"),
        ('output-format = "xml"\n', "there is no output-format 'xml'; choose one of full"),
        ('per-file-ignores = ["a"]\n', "per-file-ignores has to be a table"),
        ("select = [\n", "cannot be read"),
        ("extend = 1\n", "extend has to be the name of a file, not 1"),
        ('extend = "hfspeed.toml"\n', "it extends hfspeed.toml, which extends it"),
        ('extend = "nowhere.toml"\n', "it extends nowhere.toml, which is not there"),
        ('target = ["vllm"]\n', "target wants transformers==VERSION or vllm==VERSION, not 'vllm'"),
        ('target = ["torch==2"]\n', "target wants"),
    ],
)
def test_a_wrong_setting_is_told(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "hfspeed.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        Configuration().of(tmp_path)
    assert words in str(caught.value)
    assert "hfspeed.toml" in str(caught.value)


def test_a_file_extends_another(tmp_path: Path) -> None:
    inner = tmp_path / "a"
    inner.mkdir()
    (tmp_path / "pyproject.toml").write_text('[tool.hfspeed]\nselect = ["HFS1"]\nignore = ["HFS101"]\nstatic = true\n')
    (tmp_path / "hfspeed.toml").write_text('extend = "pyproject.toml"\nignore = []\n')
    (inner / "hfspeed.toml").write_text('extend = "../hfspeed.toml"\nselect = ["HFS7"]\n')
    own = Configuration().of(inner)
    assert (own.root, own.select, own.ignore, own.static) == (inner, ("HFS7",), (), True)


def test_single_settings_come_over_files_and_under_flags(tmp_path: Path) -> None:
    (tmp_path / "hfspeed.toml").write_text('select = ["HFS1"]\nfail-on = "error"\noutput-format = "json"\n')
    file, single = inline(['select=["HFS2"]', "fail-on = info", 'per-file-ignores={"a.py" = ["HFS1"]}', "static=true"])
    assert file is None
    own = Configuration({"fail-on": "warning"}, inline=single).of(tmp_path)
    assert (own.select, own.fail_on, own.output_format, own.static) == (("HFS2",), Severity.WARNING, "json", True)
    assert own.per_file_ignores == (("a.py", ("HFS1",)),)
    assert inline([str(tmp_path / "hfspeed.toml"), "static=true"]) == (tmp_path / "hfspeed.toml", {"static": True})
    with pytest.raises(UsageError, match="did you mean static"):
        Configuration(inline={"statc": True}).of(tmp_path)


@pytest.mark.parametrize("listed", [["nowhere.toml"], ["=1"], ["hfspeed.toml", "pyproject.toml"]])
def test_what_is_no_setting_is_told(listed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("hfspeed.toml", "pyproject.toml"):
        Path(name).touch()
    with pytest.raises(UsageError, match="--config"):
        inline(listed)


def test_rules_for_other_versions_are_left_out() -> None:
    assert "HFS704" in codes(Settings(), "m.py")
    assert "HFS704" in codes(Settings(target=("transformers==5.16.1", "vllm==0.32")), "m.py")
    assert "HFS704" not in codes(Settings(target=("transformers==4.57",)), "m.py")


def test_rules_that_may_change_are_asked_for() -> None:
    wanted = {rule.code for rule in rules() if rule.preview}
    assert wanted
    assert not wanted & codes(Settings(), "m.py")
    assert not wanted & codes(Settings(select=tuple(wanted)), "m.py")
    assert wanted <= codes(Settings(preview=True), "m.py")
