"""What is mended is mended wholly, keeps its layout, and means the same."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from textwrap import dedent

import pytest

from hfspeed.lint import mend as module
from hfspeed.lint.disk import Disk
from hfspeed.lint.engine import check, read
from hfspeed.lint.finding import Edit, Finding, Fix
from hfspeed.lint.mend import differences, mend
from hfspeed.lint.rule import Rule
from hfspeed.lint.rules import find, rules
from hfspeed.lint.settings import Settings
from hfspeed.refusal import Place

EVERYTHING = Settings(unsafe_fixes=True)
MENDING = [rule for rule in rules() if rule.fix is not Fix.NONE]


def mended(text: str, folder: Path, settings: Settings = EVERYTHING) -> str:
    file = folder / "modeling_example.py"
    file.write_text(dedent(text))
    disk = Disk()
    assert mend(file, disk, settings).defect == ""
    return disk.changed.get(file, dedent(text))


@pytest.mark.parametrize("rule", MENDING, ids=lambda rule: rule.code)
def test_bad_becomes_good_and_stays_so(rule: Rule, tmp_path: Path) -> None:
    for name, text in {**rule.bad.files, rule.bad.path: rule.bad.shown}.items():
        (tmp_path / name).write_text(text)
    disk = Disk()
    done = mend(tmp_path / rule.bad.path, disk, EVERYTHING)
    assert {one.code for one in done.findings} == {rule.code}
    assert {one.fix for one in done.findings} == {rule.fix}
    disk.write()
    assert (tmp_path / rule.good.path).read_text() == rule.good.shown
    for name, text in rule.good.files.items():
        left = (tmp_path / name).read_text()
        assert left == text or json.loads(left) == json.loads(text)
    again = Disk()
    assert mend(tmp_path / rule.bad.path, again, EVERYTHING).findings == ()
    assert again.changed == {}
    assert check(read(tmp_path / rule.bad.path)) == []


@pytest.mark.parametrize("rule", [rule for rule in rules() if rule.fix is Fix.NONE], ids=lambda rule: rule.code)
def test_a_rule_that_mends_nothing_brings_no_edits(rule: Rule, tmp_path: Path) -> None:
    for name, text in {**rule.bad.files, rule.bad.path: rule.bad.text}.items():
        (tmp_path / name).write_text(text)
    assert not [one for one in check(read(tmp_path / rule.bad.path)) if one.code == rule.code and one.edits]


CHAIN = """\
class Attention(nn.Module):
    def forward(self, x, attention_mask=None, past_key_values=None, **kwargs):
        run = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
        return run(self, x, x, x, attention_mask, **kwargs)[0]


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attn = Attention(config)

    def forward({signature}):
        return x + self.attn({call})


class SmallForCausalLM(PreTrainedModel):
    _supports_attention_backend = True

    def __init__(self, config):
        super().__init__(config)
        self.layers = nn.ModuleList(Layer(config) for _ in range(2))

    def forward(self, x, **kw):
        for layer in self.layers:
            x = layer(x, **kw)
        return x
"""


@pytest.mark.parametrize(
    ("signature", "call", "after_signature", "after_call"),
    [
        ("self, x", "x", "self, x, **kwargs", "x, **kwargs"),
        ("self, x=(1)", "(x)", "self, x=(1), **kwargs", "(x), **kwargs"),
        ("self, x, *, a: int = f(1, 2)", "x, past_key_values=None", "self, x, *, a: int = f(1, 2), **kwargs",
         "x, past_key_values=None, **kwargs"),
        ("\n        self,\n        x,  # tokens\n    ", "\n            x,  # tokens\n        ",
         "\n        self,\n        x,\n        **kwargs,  # tokens\n    ",
         "\n            x,\n            **kwargs,  # tokens\n        "),
        ("\n        self, x\n    ", "\n            x\n        ", "\n        self, x, **kwargs\n    ",
         "\n            x,\n            **kwargs\n        "),
    ],
)  # fmt: skip
def test_keywords_are_threaded(
    signature: str, call: str, after_signature: str, after_call: str, tmp_path: Path
) -> None:
    got = mended(CHAIN.format(signature=signature, call=call), tmp_path)
    ast.parse(got)
    assert "".join(got.split()) == "".join(CHAIN.format(signature=after_signature, call=after_call).split())
    assert got.count("# tokens") == (signature + call).count("# tokens")


def test_the_functions_own_name_for_keywords_is_used(tmp_path: Path) -> None:
    got = mended(CHAIN.format(signature="self, x, **rest", call="x"), tmp_path)
    assert "self.attn(x, **rest)" in got


FLAGGED = """
    class A(nn.Module):
        def forward(self, x, mask=None, past_key_values=None, **kwargs):
            return ALL_ATTENTION_FUNCTIONS["x"](self, x, x, x, mask, **kwargs)[0]

    class M(PreTrainedModel):{body}

    class MForCausalLM(M):
        pass
"""


@pytest.mark.parametrize(
    ("body", "after"),
    [
        ("\n        pass", "\n        _supports_attention_backend = True"),
        (" pass", " _supports_attention_backend = True"),
        ('\n        """Doc."""', '\n        """Doc."""\n        _supports_attention_backend = True'),
        ("\n        a = [\n            1,\n        ]  # one\n\n        def f(self):\n            pass",
         "\n        a = [\n            1,\n        ]  # one\n        _supports_attention_backend = True\n"  # noqa: ISC004
         "\n        def f(self):\n            pass"),
        ("\n        @property\n        def f(self):\n            pass",
         "\n        _supports_attention_backend = True\n\n        @property\n        def f(self):\n            pass"),
        ("\n        config: Config\n        base = 'é'",
         "\n        config: Config\n        base = 'é'\n        _supports_attention_backend = True"),
    ],
)  # fmt: skip
def test_the_flag_goes_where_flags_are(body: str, after: str, tmp_path: Path) -> None:
    assert mended(FLAGGED.format(body=body), tmp_path) == dedent(FLAGGED.format(body=after))


LINEAR = """
    class A(nn.Module):
        def __init__(self):
            self.q = nn.Linear(4, 4{made})

        def forward(self, x):
            return {call}
"""


@pytest.mark.parametrize(
    ("made", "call", "after"),
    [
        (", bias=False", "F.linear(x, self.q.weight)", "self.q(x)"),
        (", False", "F.linear(input=x + 1, weight=self.q.weight)", "self.q(x + 1)"),
        ("", "F.linear(x, self.q.weight, self.q.bias)", "self.q(x)"),
        (", bias=config.bias", "F.linear(x, self.q.weight, bias=self.q.bias)", "self.q(x)"),
        ("", "F.linear(x, self.q.weight)", None),  # drops the bias, which may be meant
        (", bias=config.bias", "F.linear(x, self.q.weight)", None),
        (", bias=False", "F.linear(x, self.q.weight.float())", None),
        (", bias=False", "torch.matmul(x, self.q.weight.T)", None),
        ("", "self.q(input=x)", "self.q(x)"),
        ("", "self.q(input = x.y)", "self.q(x.y)"),
        ("", "self.q(input=(x))", "self.q((x))"),
        ("", "self.q(\n                input=x,  # a\n        )", "self.q(\n                x,  # a\n        )"),
    ],
)  # fmt: skip
def test_projections_are_called(made: str, call: str, after: str | None, tmp_path: Path) -> None:
    got = mended(LINEAR.format(made=made, call=call), tmp_path)
    assert got == dedent(LINEAR.format(made=made, call=after or call))


def test_a_map_keeps_its_layout(tmp_path: Path) -> None:
    rule = find("HFS702")
    assert rule is not None
    text = '{\n  "auto_map": {\n    "AutoConfig": "c.C",\n    "AutoModelForCausalLM": "m.MForCausalLM"\n  }\n}\n'
    (tmp_path / "config.json").write_text(text.replace("m.M", "modeling_example.Example"))
    mend_file = tmp_path / "modeling_example.py"
    mend_file.write_text(rule.bad.shown)
    disk = Disk()
    mend(mend_file, disk, EVERYTHING)
    assert disk.changed[tmp_path / "config.json"].splitlines()[3:5] == [
        '    "AutoModel": "modeling_example.ExampleModel",',
        '    "AutoModelForCausalLM": "modeling_example.ExampleForCausalLM"',
    ]
    (tmp_path / "config.json").write_text('{"auto_map": {"AutoModelForCausalLM": "other.ExampleForCausalLM"}}')
    (tmp_path / "other.py").touch()
    assert check(read(mend_file)) == []


def test_hints_are_put_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"auto_map": {"AutoModel": "modeling_example.X"}}')
    got = mended("from hfspeed import (\n    norm,  # why\n)\n\n\nclass X:\n    pass\n", tmp_path)
    assert got.startswith("from .hfspeed_hints import (\n    norm,  # why\n)\n")
    assert mended("import hfspeed\n\n\nclass X:\n    pass\n", tmp_path) == "import hfspeed\n\n\nclass X:\n    pass\n"


def test_unsafe_fixes_have_to_be_asked_for() -> None:
    unsafe = Finding(*("HFS101", "x", rules()[0].severity, "", "", ""), Place("m.py", 1), Fix.UNSAFE)
    assert not Settings().mends(unsafe)
    assert EVERYTHING.mends(unsafe)


@pytest.mark.parametrize("broken", ["(", "# hfspeed: ignore[HFS102]\n"])
def test_what_does_not_come_out_right_is_taken_back(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fix that breaks the file, and one that brings back what it mends."""
    file = tmp_path / "m.py"
    file.write_text("x = 1  # hfspeed: ignore[HFS102]\n")
    real = module.check

    def breaking(*given: object) -> list[Finding]:
        found = real(*given)  # type: ignore[arg-type]
        return [Finding(**{**vars(one), "edits": (Edit(one.edits[0].place, broken),)}) for one in found if one.edits]

    monkeypatch.setattr(module, "check", breaking)
    disk = Disk()
    done = mend(file, disk, Settings())
    assert done.findings == ()
    assert "HFS902" in done.defect
    assert disk.changed == {}


def test_a_difference_can_be_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.py").write_text("a = 1\nx = 1  # noqa: HFS102")
    disk = Disk()
    mend(Path("m.py"), disk, Settings())
    assert "".join(differences(disk)).splitlines()[2:] == [
        "@@ -1,2 +1,2 @@", " a = 1", "-x = 1  # noqa: HFS102", "\\ No newline at end of file", "+x = 1",
        "\\ No newline at end of file",
    ]  # fmt: skip


def test_files_of_mixed_line_ends_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_bytes(b"a = 1\r\nx = 1  # noqa: HFS102\n")
    disk = Disk()
    assert mend(tmp_path / "m.py", disk, Settings()).findings == ()


INLINED = """
def _apply(layer, x):
    return layer(x)


def _both(first, second, x):
    \"\"\"Two at once.\"\"\"
    return first(x), second(x)


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(4, 4)
        self.k = nn.Linear(4, 4)

    def forward(self, x, layer=None):
        return {call}

    def _k(self, x):
        return self.k(x)

    def _twice(self, x):
        return self.q(x) + self.k(x)
"""


@pytest.mark.parametrize(
    ("call", "after"),
    [
        ("_apply(self.q, x + 1)", "self.q(x + 1)"),
        ("_apply(x=x, layer=self.q)", "self.q(x)"),
        ("_both(self.q, self.k, x)", "self.q(x), self.k(x)"),
        ("_both(self.q, self.k, x)[0]", "(self.q(x), self.k(x))[0]"),
        ("self._k(x).relu()", "self.k(x).relu()"),
        ("self._twice(x)", "self.q(x) + self.k(x)"),
        ("2 * self._twice(x)", "2 * (self.q(x) + self.k(x))"),
        ("self._twice(x.relu())", None),  # would be computed twice
        ("_apply(self.q, *x)", None),
        ("_apply(x, self.q)", None),
        ("self.act(x)", None),
    ],
)
def test_helpers_are_written_out(call: str, after: str | None, tmp_path: Path) -> None:
    assert mended(INLINED.format(call=call), tmp_path) == dedent(INLINED.format(call=after or call))
