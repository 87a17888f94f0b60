"""The analyses behind the rules that read, in the spellings authors use."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from hfspeed.lint.engine import check, parse
from hfspeed.lint.settings import choose

ATTENTION = """
    class A(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.q_proj = nn.Linear(4, 4)

        def forward(self, x, attention_mask=None, past_key_values=None, **kwargs):
            run = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
            return run(self, x, x, x, attention_mask, **kwargs)[0]
"""


def codes(source: str, path: str = "modeling_x.py") -> list[tuple[str, int]]:
    return [(finding.code, finding.place.line) for finding in check(parse(dedent(source), Path(path)))]


def hand(body: str, rest: str = "") -> list[tuple[str, int]]:
    lines = "".join(f"        {line}\n" for line in dedent(body).strip().splitlines())
    return codes(f"class A(nn.Module):\n    def forward(self, q, k, v, layer_past=None):\n{lines}\n{dedent(rest)}")


@pytest.mark.parametrize(
    "body",
    [
        "return F.softmax(q @ k.mT, dim=-1) @ v",
        "s = q @ k.mT\ns = s + mask\np = nn.functional.softmax(s, -1).to(q.dtype)\np = self.dropout(p)\nreturn p @ v",
        "s = torch.einsum('bhqd,bhkd->bhqk', q, k)\np = s.softmax(-1)\nreturn torch.einsum('bhqk,bhkd->bhqd', p, v)",
        "s = alibi.baddbmm(q, k)\np = self.softmax(input=s)\nif True:\n    p = p.view(1)\nreturn torch.bmm(p, v)",
        "return F.scaled_dot_product_attention(q, k, v)",
        "s = torch.matmul(q, k.mT)\np = nn.Softmax(dim=-1)(s)\nreturn torch.matmul(p, v)",
        "return flash_attn_func(q, k, v)",
        "return self.inner(q, k, v)\n",
    ],
)
def test_attention_by_hand_is_seen(body: str) -> None:
    inner = "    def inner(self, q, k, v):\n        return torch.softmax(q @ k, -1) @ v\n" if "inner" in body else ""
    source = "class A(nn.Module):\n    def forward(self, q, k, v, layer_past=None):\n"
    source += "".join(f"        {line}\n" for line in body.splitlines()) + inner
    assert [code for code, _ in codes(source)] == ["HFS101"]


def test_attention_in_a_function_is_told_at_its_call() -> None:
    found = hand("y = slow(q, k, v)\nreturn y", "def slow(q, k, v):\n    return torch.softmax(q @ k, -1) @ v\n")
    assert found == [("HFS101", 3)]


@pytest.mark.parametrize(
    "body",
    [
        # a router: its scores are a projection's, and no product reads them
        "p = F.softmax(self.gate(q), -1)\nw, i = p.topk(2)\nreturn self.experts(q, i, w)",
        "p = F.softmax(F.linear(q, self.weight), -1)\nreturn p",
        # pooling by learned weights
        "p = self.score(q).softmax(-1)\nreturn (p * q).sum(-1)",
        # the written-out form is only the fallback
        "run = ALL_ATTENTION_FUNCTIONS.get_interface(self.kind, slow)\nreturn run(self, q, k, v, None)",
    ],
)
def test_what_is_no_attention_by_hand_is_silent(body: str) -> None:
    assert hand(body, "def slow(m, q, k, v, mask):\n    return torch.softmax(q @ k, -1) @ v\n") == []


def test_an_encoder_beside_the_decoder_is_not_told() -> None:
    source = (
        ATTENTION
        + """
    class Vision(nn.Module):
        def forward(self, q, k, v):
            return torch.softmax(q @ k, -1) @ v

    class M(PreTrainedModel):
        _supports_attention_backend = True

        def __init__(self, config):
            self.attn = A(config)

        def forward(self, x, **kwargs):
            return self.attn(x, **kwargs)

    class MForCausalLM(M):
        pass
    """
    )
    assert codes(source) == []


@pytest.mark.parametrize(
    ("flag", "base", "expected"),
    [
        ("", "PreTrainedModel", ["HFS102"]),
        ("_supports_attention_backend = True", "PreTrainedModel", []),
        ("_supports_attention_backend = False", "PreTrainedModel", []),  # the author has decided
        ("", "LlamaPreTrainedModel", []),  # may be inherited
    ],
)
def test_the_flag_may_be_inherited(flag: str, base: str, expected: list[str]) -> None:
    source = (
        ATTENTION
        + f"""
    class M({base}):
        {flag or "pass"}

    class MForCausalLM(M):
        pass
    """
    )
    assert [code for code, _ in codes(source)] == expected


def test_cross_attention_excuses_from_the_flag() -> None:
    source = (
        ATTENTION.replace("past_key_values=None", "past_key_values=None, key_value_states=None")
        + """
    class MForCausalLM(PreTrainedModel):
        pass
    """
    )
    assert codes(source) == []


M_DROPS = "`M` calls `layers` without `**kwargs`"
CHAIN = """
    class Layer(nn.Module):
        def __init__(self, config):
            self.attn = KINDS[config.kind](config)

        def forward(self, x{layer_takes}):
            return self.attn(x{attn_gets})

    KINDS = {{"eager": A}}

    class M(PreTrainedModel):
        _supports_attention_backend = True

        def __init__(self, config):
            self.layers = nn.ModuleList([Layer(config) for _ in range(2)])

        def forward(self, x, **kwargs):
            for index, layer in enumerate(self.layers[:2]):
                x = layer(x{layer_gets})
            return x

    class MForCausalLM(M):
        def __init__(self, config):
            self.model = M(config)

        def forward(self, x, **kw):
            return self.model(x, **kw)
"""


@pytest.mark.parametrize(
    ("hops", "expected"),
    [
        ({}, []),
        ({"attn_gets": ""}, ["`Layer` calls `attn` without `**kwargs`"]),
        ({"layer_gets": ", use_cache=True"}, [M_DROPS]),
        ({"layer_takes": ""}, ["`Layer.forward` takes no `**kwargs`"]),
        (
            {"layer_gets": "", "attn_gets": ""},
            ["`Layer` calls `attn` without `**kwargs`", "`M` calls `layers` without `**kwargs`"],
        ),
        ({"attn_gets": ", encoder_hidden_states=x"}, []),
    ],
)
def test_every_hop_that_drops_keywords_is_named(hops: dict[str, str], expected: list[str]) -> None:
    given = {"layer_takes": ", **kwargs", "attn_gets": ", **kwargs", "layer_gets": ", **kwargs", **hops}
    source = dedent(ATTENTION) + dedent(CHAIN.format(**given))
    assert [finding.message for finding in check(parse(source, Path("m.py")))] == expected


def test_the_interface_itself_can_be_the_hop() -> None:
    source = dedent(ATTENTION).replace("attention_mask, **kwargs)[0]", "attention_mask)[0]") + dedent(
        CHAIN.format(layer_takes=", **kwargs", attn_gets=", **kwargs", layer_gets=", **kwargs")
    )
    assert [f.message for f in check(parse(source, Path("m.py")))] == ["`A` calls the interface without `**kwargs`"]


HINTED = """
    {imports}

    @{hint}
    class Block({base}):
        kind = 1

        def __init__(self):
            self.q_proj = nn.Linear(4, 4)
            self.a, self.b = make()
            {more}
"""


@pytest.mark.parametrize(
    ("imports", "hint", "fires"),
    [
        ("from hfspeed import attention", "attention(query='q')", True),
        ("from hfspeed import attention", "attention(query='q_proj', key='a', value='b')", False),
        ("from hfspeed import attention", "attention", False),
        ("from hfspeed.hints import attention as at", "at(query='q')", True),
        ("from .hfspeed_hints import decoder_layers", "decoder_layers('q')", True),
        ("from . import hfspeed_hints", "hfspeed_hints.decoder_layers(layers='q')", True),
        ("import hfspeed as hf", "hf.gated_mlp(up='q_proj.inner')", False),
        ("import hfspeed.hints", "hfspeed.hints.gated_mlp(up='nope.inner')", True),
        ("from other import attention", "attention(query='q')", False),
    ],
)
def test_hints_are_known_by_their_import(imports: str, hint: str, fires: bool) -> None:
    source = HINTED.format(imports=imports, hint=hint, base="nn.Module", more="pass")
    assert [code for code, _ in codes(source)] == (["HFS002"] if fires else [])


@pytest.mark.parametrize(
    ("base", "more"),
    [("Imported", "pass"), ("nn.Module", "setattr(self, name, 1)"), ("nn.Module", "self.__dict__.update(x)"),
     ("nn.Module", "self.add_module('q', x)"), ("nn.Module", "setattr(self, 'q', x)"),
     ("nn.Module", "self.q: int = 1")],
)  # fmt: skip
def test_where_not_every_child_can_be_seen_hints_are_believed(base: str, more: str) -> None:
    source = HINTED.format(imports="from hfspeed import attention", hint="attention(query='q')", base=base, more=more)
    assert codes(source) == []


@pytest.mark.parametrize(
    ("call", "fires"),
    [
        ("F.linear(x, self.q.weight)", True),
        ("F.linear(x, self.q.weight.float(), self.q.bias)", True),
        ("torch.matmul(x, self.q.weight.t())", True),
        ("torch.matmul(x, self.q.weight.T)", True),
        ("F.linear(x, weight=self.q.weight)", True),
        ("F.linear(x, self.embed.weight)", False),  # a tied head is no projection
        ("F.linear(x, self.weight)", False),
        ("self.q(x)", False),
    ],
)
def test_a_projection_past_its_child(call: str, fires: bool) -> None:
    source = f"""
    class A(nn.Module):
        def __init__(self):
            self.q = nn.Linear(4, 4)
            self.embed = nn.Embedding(4, 4)

        def forward(self, x):
            return {call}
    """
    assert [code for code, _ in codes(source)] == (["HFS204"] if fires else [])


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("import hfspeed\n", [1]),
        ("import os, hfspeed.hints as h\n", [1]),
        ("def f():\n    from hfspeed import norm\n", [2]),
        ("if TYPE_CHECKING:\n    import hfspeed\n", [2]),
        ("try:\n    import hfspeed\nexcept ImportError:\n    pass\n", []),
        ("try:\n    pass\nexcept ImportError:\n    import hfspeed\n", [4]),
        ("from .hfspeed_hints import norm\n", []),
        ("from .hfspeed import norm\n", []),
        ("import hfspeedy\n", []),
    ],
)
def test_imports_in_hub_folders(source: str, lines: list[int], tmp_path: Path) -> None:
    path = tmp_path / "modeling_x.py"
    assert check(parse(source, path), choose(["HFS701"])) == []
    (tmp_path / "config.json").write_text('{"auto_map": {"AutoModel": "modeling_x.X"}}')
    assert [finding.place.line for finding in check(parse(source, path), choose(["HFS701"]))] == lines
    (tmp_path / "config.json").write_text("{ not json")
    assert check(parse(source, path), choose(["HFS701"])) == []


@pytest.mark.parametrize(
    ("attention", "told"),
    [
        ("s = q @ k.mT\n        y = torch.exp(s - torch.logsumexp(s, -1, keepdim=True)) @ v", True),
        ("s = q @ k.mT\n        z = s.logsumexp(-1, True)\n        w = (s - z).exp()\n        y = w @ v", True),
        ("y = flash_attn_with_kvcache(q, k, v)", True),
        ("y = flash_attn_varlen_qkvpacked_func(q)", True),
        ("y = stable_softmax(q @ k.mT) @ v", True),
        ("y = F.log_softmax(q @ k.mT, -1) @ v", False),
        ("y = torch.exp(q @ k.mT) @ v", False),
        ("y = torch.softmax(self.router(q), -1) @ v", False),
    ],
)
def test_attention_in_other_words(attention: str, told: bool) -> None:
    head = "class A(nn.Module):\n    def forward(self, q, k, v, past_key_values=None):\n"
    text = f"{head}        {attention}\n        return y\n"
    assert ([one.code for one in check(parse(text, Path("modeling_x.py")))] == ["HFS101"]) is told
