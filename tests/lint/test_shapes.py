"""Code shapes that users stumbled over, each as a small model with its variants: the right rule at the right line."""

from __future__ import annotations

from pathlib import Path

import pytest

from hfspeed.lint.disk import Disk
from hfspeed.lint.engine import check, parse
from hfspeed.lint.mend import mend
from hfspeed.lint.settings import Settings

HEAD = """
class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self_attn = {made}

    def forward(self, hidden_states, attention_mask=None{layer_takes}):
        return hidden_states + self.self_attn(hidden_states, attention_mask=attention_mask{attention_gets})


class Model(PreTrainedModel):
    _supports_attention_backend = {flag}

    def __init__(self, config):
        super().__init__(config)
        self.layers = nn.ModuleList([Layer(config) for _ in range(2)])

    def forward(self, hidden_states, attention_mask=None, **kwargs):
        for layer in self.layers:
            {loop}
        return hidden_states


class MForCausalLM(Model):
    def __init__(self, config):
        super().__init__(config)
        self.model = Model(config)

    def forward(self, hidden_states, attention_mask=None, **kwargs):
        return self.model(hidden_states, attention_mask=attention_mask{model_gets})
"""
BY_HAND = """
class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.q_proj = nn.Linear(8, 8)
        self.k_proj = nn.Linear(8, 4)
        self.v_proj = nn.Linear(8, 4)

    def forward(self, hidden_states, attention_mask=None, **kwargs):
        query = self.q_proj(hidden_states).view(1, -1, 4, 2).transpose(1, 2)
        key = repeat_kv(self.k_proj(hidden_states).view(1, -1, 2, 2).transpose(1, 2), 2)
        value = repeat_kv(self.v_proj(hidden_states).view(1, -1, 2, 2).transpose(1, 2), 2)
        {attention}
        return out
"""
DISPATCHING = BY_HAND.replace(
    "{attention}",
    'run = ALL_ATTENTION_FUNCTIONS["x"]\n        out, _ = run(self, query, key, value, attention_mask, **kwargs)',
).replace("attention_mask=None, **kwargs", "attention_mask=None, past_key_values=None, **kwargs")
EAGER = (
    "scores = torch.matmul(query, key.transpose(2, 3)) / math.sqrt(2)\n        scores = scores + attention_mask\n"
    "        weights = nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)\n"
    "        out = torch.matmul(weights, value)"
)
WHOLE = {
    "made": "Attention(config)",
    "layer_takes": ", **kwargs", "attention_gets": ", **kwargs", "model_gets": ", **kwargs",
    "loop": "hidden_states = layer(hidden_states, attention_mask, **kwargs)", "flag": "True",
}  # fmt: skip


def found(text: str) -> list[tuple[str, str]]:
    """Codes and the lines that they are told at."""
    lines = text.split("\n")
    return [(one.code, lines[one.place.line - 1].strip()) for one in check(parse(text, Path("modeling_m.py")))]


@pytest.mark.parametrize(
    ("attention", "line"),
    [
        (EAGER, "weights = nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)"),
        (
            "out = flash_attn_func(query, key, value, causal=True)",
            "out = flash_attn_func(query, key, value, causal=True)",
        ),
    ],
)
@pytest.mark.parametrize("flag", ["True", "False"])
def test_attention_that_is_written_out(attention: str, line: str, flag: str) -> None:
    text = BY_HAND.format(attention=attention) + HEAD.format(**{**WHOLE, "flag": flag})
    untrue = [("HFS108", "_supports_attention_backend = True")] if flag == "True" else []
    assert found(text) == [("HFS101", line), *untrue]


def test_one_of_three_attention_classes() -> None:
    classes = BY_HAND.format(attention=EAGER)
    for name, call in (("Flash", "flash_attn_func"), ("Sdpa", "F.scaled_dot_product_attention")):
        classes += (
            f"class {name}Attention(Attention):\n    def forward(self, hidden_states, attention_mask=None, **kwargs):\n"
        )
        classes += f"        q = self.q_proj(hidden_states)\n        return {call}(q, q, q)\n\n"
    classes += 'KINDS = {"eager": Attention, "flash": FlashAttention, "sdpa": SdpaAttention}\n'
    made = HEAD.format(**{**WHOLE, "made": "KINDS[config._attn_implementation](config)", "flag": "False"})
    assert [code for code, _ in found(classes + made)] == ["HFS101"] * 3


CHECKPOINTING = """if self.training:
                hidden_states = checkpoint(layer.__call__, hidden_states, attention_mask, **kwargs)
            else:
                hidden_states = layer(hidden_states, attention_mask)"""
LOOP = "hidden_states = layer(hidden_states, attention_mask)"
CALL = "return hidden_states + self.self_attn(hidden_states, attention_mask=attention_mask)"


@pytest.mark.parametrize(
    ("lost", "lines"),
    [
        ({"layer_takes": "", "attention_gets": "", "loop": LOOP},
         ["def forward(self, hidden_states, attention_mask=None):", LOOP]),
        ({"attention_gets": ""}, [CALL]),
        ({"loop": CHECKPOINTING}, [LOOP]),
        ({"model_gets": ""}, ["return self.model(hidden_states, attention_mask=attention_mask)"]),
    ],
)  # fmt: skip
def test_keywords_that_are_lost_one_hop_down(lost: dict[str, str], lines: list[str], tmp_path: Path) -> None:
    text = DISPATCHING + HEAD.format(**{**WHOLE, **lost})
    assert found(text) == [("HFS103", line) for line in lines]
    file = tmp_path / "modeling_m.py"
    file.write_text(text)
    disk = Disk()
    mend(file, disk, Settings())
    assert found(disk.changed[file]) == []
    if lost.keys() == {"attention_gets"}:
        assert disk.changed[file] == DISPATCHING + HEAD.format(**WHOLE)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("self._shape(self.q_proj(hidden_states))", []),
        ("F.linear(hidden_states, self.q_proj.weight, self.q_proj.bias)", ["HFS204"]),
        ("self.q_proj(input=hidden_states)", ["HFS211"]),
    ],
)
def test_projections_that_are_called_oddly(call: str, expected: list[str], tmp_path: Path) -> None:
    text = DISPATCHING.replace("self.q_proj(hidden_states)", call) + HEAD.format(**WHOLE)
    assert [code for code, _ in found(text)] == expected
    file = tmp_path / "modeling_m.py"
    file.write_text(text)
    disk = Disk()
    mend(file, disk, Settings())
    if expected:
        assert disk.changed[file] == DISPATCHING + HEAD.format(**WHOLE)


def test_attention_of_another_model_may_ask_the_interface() -> None:
    text = BY_HAND.format(attention=EAGER) + HEAD.format(**WHOLE)
    building = "from transformers.models.other.modeling_other import OtherAttention\n" + text
    assert [code for code, _ in found(text)] == ["HFS101", "HFS108"]
    assert [code for code, _ in found(building)] == ["HFS101"]


def test_keywords_that_are_handed_on_as_a_value() -> None:
    lost = {"layer_takes": "", "attention_gets": "", "loop": "hidden_states = layer(hidden_states, Step(more=kwargs))"}
    assert [code for code, _ in found(DISPATCHING + HEAD.format(**{**WHOLE, **lost}))] == []
    lost["loop"] = LOOP + "; len(kwargs.keys()); 'x' in kwargs"
    assert [code for code, _ in found(DISPATCHING + HEAD.format(**{**WHOLE, **lost}))] == ["HFS103"] * 2


def test_classes_that_were_given_each_other_s_names() -> None:
    text = "from x import B\n\n\nclass A(B):\n    pass\n\n\nclass B(A):\n    pass\n\n\n"
    assert found(text + BY_HAND.format(attention=EAGER) + HEAD.format(**{**WHOLE, "flag": "False"}))[0][0] == "HFS101"


def test_the_method_of_the_class_above() -> None:
    text = DISPATCHING.replace("def forward", "def attend") + "class Second(Attention):\n"
    text += "    def forward(self, x, attention_mask=None, past_key_values=None):\n"
    text += "        return super().attend(x, attention_mask)\n\n"
    made = HEAD.format(**{**WHOLE, "made": "Second(config)", "attention_gets": ", **kwargs"})
    assert [code for code, _ in found(text + made)] == ["HFS103"]
