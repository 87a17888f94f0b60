"""``plan --check``, ``--diff`` and ``--write``: what they print, what they write, and their exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hfspeed.cli.app import main

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLES / "plain", tmp_path / "plain")
    return tmp_path / "plain"


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(["plan", *arguments, "--trust-remote-code"])
    out, err = capsys.readouterr()
    return int(left.value.code or 0), out, err


def test_missing_plans_are_found_shown_written_and_then_right(folder: Path, capsys) -> None:
    file = folder / "configuration_plain.py"
    before = file.read_text("utf-8")
    code, out, _ = run(capsys, str(folder), "--check")
    assert code == 1
    assert f"{file}:" in out
    assert "there is no base_model_tp_plan" in out
    code, out, _ = run(capsys, str(folder), "--diff")
    assert code == 0
    assert '+        "blocks.*.mixer.wo": "rowwise",' in out
    assert file.read_text("utf-8") == before
    code, out, err = run(capsys, str(folder), "--write")
    assert (code, out) == (0, "")
    assert f"wrote {file}" in err
    assert '"blocks.*.mixer.wo": "rowwise"' in file.read_text("utf-8")
    code, out, err = run(capsys, str(folder), "--check")
    assert (code, out) == (0, "")
    assert "the declared plans are right" in err
    code, _, err = run(capsys, str(folder), "--write")
    assert code == 0
    assert f"{file} is up to date" in err


def test_two_requests_at_once_are_refused(capsys) -> None:
    code, _, err = run(capsys, "x", "--check", "--write")
    assert code == 2
    assert "give one of them" in err


def test_a_file_keeps_its_ends_of_lines_and_its_mark(folder: Path, capsys) -> None:
    file = folder / "configuration_plain.py"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    file.chmod(0o640)
    code, _, err = run(capsys, str(folder), "--write")
    assert code == 0, err
    after = file.read_bytes()
    assert after.startswith(b"\xef\xbb\xbf")
    assert b'"blocks.*.mixer.wo": "rowwise",\r\n' in after
    assert after.count(b"\n") == after.count(b"\r\n")
    assert file.stat().st_mode & 0o777 == 0o640
    assert [one.name for one in folder.iterdir() if one.name.startswith(".")] == []


BEHIND = '\nPlainConfig.base_model_tp_plan = {"blocks.*.mixer.wo": "colwise"}\n'
INSIDE = """
    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        self.base_model_tp_plan = {}
"""


@pytest.mark.parametrize("inside", [False, True], ids=["behind the class", "in the constructor"])
def test_nothing_is_written_that_other_code_overrides(folder: Path, capsys, inside: bool) -> None:
    file = folder / "configuration_plain.py"
    text = file.read_text("utf-8")
    last = "    tie_word_embeddings: bool = False\n"
    text = text.replace(last, last + INSIDE) if inside else text + BEHIND
    file.write_text(text, "utf-8")
    line = next(n for n, one in enumerate(text.splitlines(), 1) if "base_model_tp_plan" in one)
    code, out, err = run(capsys, str(folder), "--write")
    assert (code, out) == (2, "")
    told = " ".join(err.split())
    assert f"configuration_plain.py:{line}" in told.replace(" ", "")
    assert "sets base_model_tp_plan and says otherwise" in told
    assert file.read_text("utf-8") == text


def test_entries_that_stay_although_they_match_nothing_are_told(folder: Path, capsys) -> None:
    file = folder / "configuration_plain.py"
    text = file.read_text("utf-8")
    first = '    model_type = "plain"\n'
    file.write_text(text.replace(first, first + '    base_model_tp_plan = {"blocks.*.other": "colwise"}\n'), "utf-8")
    code, _, err = run(capsys, str(folder), "--write")
    assert code == 0, err
    told = " ".join(err.split())
    assert "left: `blocks.*.other` in base_model_tp_plan matches no module of this configuration" in told
    code, out, _ = run(capsys, str(folder), "--check")
    assert code == 1
    assert out.count("\n") == 1
    assert "`blocks.*.other` in base_model_tp_plan matches no module" in out


def test_a_link_to_elsewhere_is_not_written(folder: Path, tmp_path: Path, capsys) -> None:
    file = folder / "configuration_plain.py"
    elsewhere = tmp_path / "elsewhere.py"
    elsewhere.write_bytes(file.read_bytes())
    file.unlink()
    file.symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    code, _, err = run(capsys, str(folder), "--write")
    assert code == 2
    assert "is a symbolic link to" in " ".join(err.split())
    assert "installed package" not in err
    assert elsewhere.read_bytes() == before


def test_a_plan_in_the_json_has_the_last_word(folder: Path, capsys) -> None:
    file = folder / "config.json"
    text = file.read_text("utf-8").replace(
        '"bos_token_id"', '"base_model_tp_plan": {\n    "blocks.*.other": "colwise"\n  },\n  "bos_token_id"'
    )
    file.write_text(text, "utf-8")
    line = next(n for n, one in enumerate(text.splitlines(), 1) if "base_model_tp_plan" in one)
    code, out, _ = run(capsys, str(folder), "--check")
    assert code == 1
    assert f"{file}:{line + 1}:1: tp plan in blocks.*.other: `blocks.*.other` in base_model_tp_plan matches no" in out
    before = (folder / "configuration_plain.py").read_text("utf-8")
    code, _, err = run(capsys, str(folder), "--write")
    assert code == 2
    assert f"config.json:{line}: base_model_tp_plan stands there as well and has the last word" in " ".join(err.split())
    assert (folder / "configuration_plain.py").read_text("utf-8") == before


def declaring(folder: Path, plans: str) -> None:
    file = folder / "configuration_plain.py"
    first = '    model_type = "plain"\n'
    file.write_text(file.read_text("utf-8").replace(first, first + plans), "utf-8")


@pytest.mark.parametrize("value", ['["blocks.*.mixer.wq"]', '"auto"', '(("blocks.*.mixer.wq", "colwise"),)'])
def test_a_plan_that_is_no_dictionary_is_told_at_its_line(folder: Path, capsys, value: str) -> None:
    declaring(folder, f"    base_model_ep_plan = {value}\n")
    for flag in ("--check", "--write"):
        code, _, err = run(capsys, str(folder), flag)
        assert code == 2
        told = " ".join(err.split())
        assert "configuration_plain.py:10: base_model_ep_plan of PlainConfig is a" in told
        assert "expected a dictionary {module: style}" in told


def test_what_has_not_the_form_of_an_entry_is_told(folder: Path, capsys) -> None:
    declaring(
        folder,
        '    base_model_tp_plan = {"blocks.*.mixer.wq": None, 3: "colwise", "blocks.*.mixer.wo": "rowwize"}\n'
        '    base_model_pp_plan = {"blocks": ["hidden_states"]}\n',
    )
    code, out, _ = run(capsys, str(folder), "--check")
    assert code == 1
    assert "configuration_plain.py:10:1: tp plan in blocks.*.mixer.wq: None in base_model_tp_plan is no style" in out
    assert "the name 3 of an entry in base_model_tp_plan is no text" in out
    assert "'rowwize' is no style that is known" in out
    assert "['hidden_states'] in base_model_pp_plan is not what a module reads and gives" in out
    assert "there is no base_model_pp_plan" not in out


@pytest.mark.parametrize("depth", [0, -3])
def test_plans_of_a_model_without_layers_are_refused(folder: Path, capsys, depth: int) -> None:
    file = folder / "config.json"
    file.write_text(file.read_text("utf-8").replace('"depth": 4', f'"depth": {depth}'), "utf-8")
    for flag in ("--check", "--write"):
        code, _, err = run(capsys, str(folder), flag)
        assert code == 2
        assert "`decoder.blocks` has no layers" in " ".join(err.split())


def sized(folder: Path, **sizes: int) -> None:
    file = folder / "config.json"
    values = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps({**values, **sizes}), "utf-8")


def test_plans_are_for_so_many_ranks(folder: Path, capsys) -> None:
    sized(folder, heads=14, kv_heads=7, head_dim=16, width=224, inner=112)
    assert run(capsys, str(folder), "--write", "--tp", "7")[0] == 0
    text = (folder / "configuration_plain.py").read_text("utf-8")
    assert '"blocks.*.mixer.wo": "rowwise"' in text
    assert run(capsys, str(folder), "--check", "--tp", "7") == (0, "", "the declared plans are right\n")
    code, out, _ = run(capsys, str(folder), "--check", "--tp", "2")
    assert code == 1
    assert "14 heads, 7 key heads, so 1, 7, 14 can" in out
    assert "mixes-split" not in out
    assert run(capsys, str(folder), "--check")[0] == 0
    assert "rowwise_split_input" in run(capsys, str(folder), "--diff", "--tp", "2")[1]


def test_what_is_written_for_sizes_that_do_not_divide_is_right_afterwards(folder: Path, capsys) -> None:
    sized(folder, heads=7, kv_heads=1, head_dim=16, width=112, inner=91)
    code, out, _ = run(capsys, str(folder), "--diff")
    assert code == 0
    assert '"blocks.*.mixer.wo": "rowwise_split_input"' in out
    assert ': "rowwise",' not in out  # no two ranks can have equal shares of 91
    assert run(capsys, str(folder), "--write")[0] == 0
    assert run(capsys, str(folder), "--check", "--tp", "2") == (0, "", "the declared plans are right\n")


def test_training_proves_the_plan_that_is_declared_as_well(folder: Path, capsys) -> None:
    file = folder / "configuration_plain.py"
    text = file.read_text("utf-8")
    first = '    model_type = "plain"\n'
    wrong = '    base_model_tp_plan = {"blocks.*.mixer.wq": "colwise", "blocks.*.mixer.wo": "colwise"}\n'
    file.write_text(text.replace(first, first + wrong), "utf-8")
    with pytest.raises(SystemExit) as left:
        main(["verify", str(folder), "--trust-remote-code", "--train", "--tp", "2", "--pp", "1"])
    out = capsys.readouterr().out
    assert left.value.code == 1
    assert "equal: tp plan found in code, 2 ranks: " in out
    assert "unequal: tp plan declared, 2 ranks: " in out
    assert "`hfspeed plan --check` says where" in out
