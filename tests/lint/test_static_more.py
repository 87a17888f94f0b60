"""The analyses of the compiler's, the Hub's and the checkpoint's rules, in the spellings authors use."""

from __future__ import annotations

import importlib
from pathlib import Path
from textwrap import dedent, indent

import pytest

from hfspeed.lint.engine import check, parse, read
from hfspeed.lint.rules.hub.hfs704_removed_import import GONE, MODULES, MOVED

MODEL = """
class MForCausalLM(PreTrainedModel):
    def forward(self, x, mask=None, labels=None):
{body}
        return x
"""


def codes(source: str, path: Path = Path("modeling_x.py")) -> list[tuple[str, int]]:
    return [(finding.code, finding.place.line) for finding in check(parse(dedent(source), path))]


def inside(body: str) -> list[str]:
    return [code for code, _ in codes(MODEL.format(body=indent(dedent(body), " " * 8)))]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("n = x.max().item()", ["HFS601"]),
        ("n = mask.sum(-1).tolist()", ["HFS601"]),
        ("n = x.shape.numpy()", ["HFS601"]),
        ("n = self.config.sizes.tolist()", []),
        ("n = np.zeros(3).tolist()", []),
        ("n = self.table.item(3)", []),
        ("if labels is not None:\n    n = labels.sum().item()", []),
        ("if self.training:\n    n = x.sum().item()\nelse:\n    n = x.item()", ["HFS601"]),
        ("if not torch.compiler.is_compiling():\n    print(x)", []),
        ("raise ValueError(x.item())", []),
        ("assert x.item() > 0", []),
        ("print(x)", ["HFS602"]),
        ("breakpoint()", ["HFS602"]),
        ("self.print(x)", []),
        ("if mask.all():\n    x = x + 1", ["HFS603"]),
        ("if mask is not None and torch.any(mask == 0):\n    x = x + 1", ["HFS603"]),
        ("x = x if (mask == 1).all() else x + 1", ["HFS603"]),
        ("while not torch.equal(x, mask):\n    x = x + 1", ["HFS603"]),
        ("if any(self.kinds) and all(k for k in self.kinds):\n    x = x + 1", []),
        ("if self.training and mask.any():\n    x = x + 1", []),
        ("if x.shape[1] > 1:\n    x = x + 1", []),
    ],
)
def test_what_a_graph_cannot_hold(body: str, expected: list[str]) -> None:
    assert inside(body) == expected


def test_what_is_not_served_is_not_read() -> None:
    source = "class Other(nn.Module):\n    def forward(self, x):\n        return x.item()\n" + MODEL.format(
        body="        pass"
    )
    assert codes(source) == []
    kept = MODEL.format(body="        n = self.count(x)") + (
        "\n    @torch.compiler.disable\n    def count(self, x):\n        return x.item()\n"
    )
    assert codes(kept) == []


LOOP = """
class Block(nn.Module):
    def forward(self, x):
        for index, expert in enumerate(self.experts):
            {find}
            {put}
        return x

class MForCausalLM(PreTrainedModel):
    def __init__(self, config):
        self.block = Block()

    def forward(self, x):
        return self.block(x)
"""


@pytest.mark.parametrize(
    ("find", "put", "fires"),
    [
        ("t, s = torch.where(chosen == index)", "y.index_add_(0, t, expert(x[t]))", True),
        ("t = (chosen == index).nonzero()", "y.index_add_(0, t, expert(x[t]))", True),
        ("t = torch.where(chosen == index, a, b)", "y.index_add_(0, t, expert(x))", False),
        ("t = torch.where(chosen == index)", "y = y + expert(x)", False),
    ],
)
def test_experts_in_a_loop(find: str, put: str, fires: bool) -> None:
    assert ("HFS301" in [code for code, _ in codes(LOOP.format(find=find, put=put))]) is fires
    cared_for = "@use_experts_implementation\n" + LOOP.format(find=find, put=put).lstrip()
    assert "HFS301" not in [code for code, _ in codes(cared_for)]


@pytest.mark.parametrize(
    ("call", "fires"),
    [
        ("self.register_buffer('t', torch.tril(torch.ones(4, 4)))", True),
        ("self.register_buffer('t', torch.arange(4), persistent=False)", False),
        ("self.register_buffer('t', torch.arange(4), False)", False),
        ("self.register_buffer('bias', torch.zeros(4))", False),  # filled from the checkpoint
        ("table = torch.outer(a, torch.arange(4)).cos()\n        self.register_buffer('t', table)", True),
    ],
)
def test_buffers_that_are_computed(call: str, fires: bool) -> None:
    source = f"class MForCausalLM(PreTrainedModel):\n    def __init__(self, config):\n        {call}\n"
    assert ([code for code, _ in codes(source)] == ["HFS501"]) is fires


@pytest.mark.parametrize(
    ("said", "fires"),
    [('["lm_head.weight"]', True), ('{"lm_head.weight": "model.embed.weight"}', False), ("[]", False), ("None", False)],
)
def test_ties(said: str, fires: bool) -> None:
    source = f"class MForCausalLM(PreTrainedModel):\n    _tied_weights_keys = {said}\n"
    assert ([code for code, _ in codes(source)] == ["HFS502"]) is fires


@pytest.mark.parametrize(
    ("source", "fires"),
    [
        ("from transformers.utils import is_torch_fx_available\n", True),
        ("from transformers.models.some.modeling_some import SomeSdpaAttention\n", True),
        ("from transformers.models.some.modeling_some import SomeAttention\n", False),
        ("from transformers.onnx import OnnxConfig\n", True),
        ("import transformers.utils.fx\n", True),
        ("try:\n    from transformers.utils import is_torch_fx_available\nexcept ImportError:\n    pass\n", False),
        ("from transformers.cache_utils import Cache, DynamicCache\n", False),
        ("from transformers.modeling_utils import PreTrainedModel\n", False),
    ],
)
def test_imports_that_are_gone(source: str, fires: bool) -> None:
    assert ([code for code, _ in codes(source)] == ["HFS704"]) is fires


def test_the_table_of_removed_names_is_true() -> None:
    pytest.importorskip("transformers")
    for module, names in GONE.items():
        there = importlib.import_module(module)
        assert not [name for name in names if hasattr(there, name)], module
    for (module, name), now in MOVED.items():
        assert not hasattr(importlib.import_module(module), name)
        assert hasattr(importlib.import_module(now), name)
    for module in MODULES:
        with pytest.raises(ImportError):
            importlib.import_module(module)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import einops\n", ["HFS705"]),
        ("def f():\n    from flash_attn import flash_attn_func\n", ["HFS705"]),
        ("if is_flash_attn_2_available():\n    from flash_attn import flash_attn_func\n", []),
        ("import os, torch, numpy as np\nfrom transformers import x\nfrom .other import y\n", []),
        ("import other\n", ["HFS706"]),
        ("from other import y\n", ["HFS706"]),
        ("import hfspeed\n", ["HFS701"]),
    ],
)
def test_imports_on_the_hub(source: str, found: list[str], tmp_path: Path) -> None:
    path = tmp_path / "modeling_x.py"
    path.write_text(source + "class X:\n    pass\n")
    assert check(read(path)) == []
    (tmp_path / "other.py").touch()
    (tmp_path / "config.json").write_text('{"auto_map": {"AutoModel": "modeling_x.X"}}')
    assert [finding.code for finding in check(read(path))] == found


def test_a_map_is_looked_up(tmp_path: Path) -> None:
    path = tmp_path / "modeling_x.py"
    path.write_text("from .other import Config as C\n\n\nclass X:\n    pass\n")
    entries = '"AutoConfig": "modeling_x.C",\n"AutoModel": "modeling_y.X",\n"AutoTokenizer": ["a.A", null]'
    (tmp_path / "config.json").write_text('{"auto_map": {\n' + entries + ', "AutoProcessor": "me/other--file.P"}}')
    (finding,) = check(read(path))
    assert finding.code == "HFS703"
    assert (finding.place.file, finding.place.line, finding.place.column) == (str(tmp_path / "config.json"), 3, 1)


@pytest.mark.parametrize(
    ("flag", "interface", "fires"), [("True", False, True), ("False", False, False), ("True", True, False)]
)
def test_a_flag_is_believed_only_with_an_interface(flag: str, interface: bool, fires: bool) -> None:
    source = f"""
    class MForCausalLM(PreTrainedModel):
        _supports_attention_backend = {flag}

        def forward(self, q, k, v):
            {"f = ALL_ATTENTION_FUNCTIONS['x']" if interface else "pass"}
            return torch.softmax(q @ k, -1) @ v
    """
    assert ("HFS108" in [code for code, _ in codes(source)]) is fires


@pytest.mark.parametrize(
    ("hint", "rest", "found"),
    [
        ("@norm(eps='eps')", "", ["HFS005"]),
        ("@norm(eps='eps')", "x = Norm(1)", []),
        ("@norm(eps='eps')", "KINDS = ['Norm']", []),
        ("@norm(eps='eps')", "class Other(Norm):\n    pass", []),
        ("@norm(eps='eps')\n@norm(eps='eps')", "x = Norm(1)", ["HFS004"]),
    ],
)
def test_hints_that_contradict_or_say_nothing(hint: str, rest: str, found: list[str]) -> None:
    source = f"from hfspeed import norm\n\n{hint}\nclass Norm(nn.Module):\n    def __init__(self, eps):\n"
    source += "        self.eps = eps\n"
    source += f"\n{rest}\n\nclass MForCausalLM(PreTrainedModel):\n    pass\n"
    assert [code for code, _ in codes(source)] == found


def test_a_plan_is_looked_up_in_the_modeling_file(tmp_path: Path) -> None:
    configuration, modeling = tmp_path / "configuration_x.py", tmp_path / "modeling_x.py"
    configuration.write_text(
        'class C:\n    base_model_tp_plan = {\n        "layers.*.up": "colwise",\n        "nrom": "x",\n    }\n'
    )
    assert check(read(configuration)) == []
    modeling.write_text("self.layers.up = 1\nself.norm = 2\n")
    assert [(one.code, one.place.line) for one in check(read(configuration))] == [("HFS407", 4)]
    modeling.write_text("from transformers.models.y.modeling_y import Y\n")
    assert check(read(configuration)) == []
    modeling.write_text(
        'class M:\n    _tp_plan = {"lm_head": "colwise", "haed": "x"}\n\n    def f(self):\n        self.lm_head = 1\n'
    )
    assert [one.message for one in check(read(modeling))] == [
        "`haed` matches nothing: `haed` is no name in modeling_x.py"
    ]
