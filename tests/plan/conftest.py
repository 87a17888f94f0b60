"""A small lawful plan, written without torch."""

from __future__ import annotations

import pytest

from hfspeed.plan import (
    Attention,
    Column,
    Embed,
    Forward,
    Gated,
    Head,
    Heads,
    Keep,
    Local,
    Norm,
    Plan,
    Proof,
    Row,
    Stacked,
    Stages,
    Tie,
    Weight,
    Wrapper,
)
from hfspeed.refusal import Place, Reason, Refusal

LAYERS = 4


def _layer(at: str, window: int | None):
    return (
        Norm(f"{at}.input_layernorm", 64, 1e-5, "plain"),
        Attention(f"{at}.self_attn", 4, 2, 16, 16, 0.1 + 0.2, window=window, sinks="sinks"),
        Heads(f"{at}.self_attn.qkv_proj", ("q_proj", "k_proj", "v_proj"), 64, 4, 2, 16, 16, True, True),
        Norm(f"{at}.self_attn.k_norm", 32, 1e-6, "one_plus", units=2),
        Row(f"{at}.self_attn.o_proj", 64, 64, False),
        Local(f"{at}.self_attn", "num_heads", 4),
        Stacked(f"{at}.mlp.gate_up_proj", ("gate_proj", "up_proj"), 64, (96, 96), False, True),
        Gated(f"{at}.mlp.act_and_mul", "silu"),
        Row(f"{at}.mlp.down_proj", 96, 64, False),
        Column(f"{at}.side.up", 64, 32, True, 8),
        Row(f"{at}.side.down", 32, 64, False),
        Keep(f"{at}.side.router"),
    )


def _weights(at: str):
    yield Weight(f"{at}.input_layernorm.weight", f"{at}.input_layernorm.weight")
    yield Weight(f"{at}.self_attn.sinks", f"{at}.self_attn.sinks")
    for part, name in enumerate(("q_proj", "k_proj", "v_proj")):
        for kind in ("weight", "bias"):
            yield Weight(f"{at}.self_attn.{name}.{kind}", f"{at}.self_attn.qkv_proj.{kind}", part)
    for part, name in enumerate(("gate_proj", "up_proj")):
        yield Weight(f"{at}.mlp.{name}.weight", f"{at}.mlp.gate_up_proj.weight", part)
    for name in (
        "self_attn.k_norm.weight", "self_attn.o_proj.weight", "mlp.down_proj.weight",
        "side.up.weight", "side.up.bias", "side.down.weight", "side.router.centre",
    ):  # fmt: skip
        yield Weight(f"{at}.{name}", f"{at}.{name}")


@pytest.fixture(scope="session")
def plan() -> Plan:
    return lawful()


def lawful() -> Plan:
    """Four layers with one op of nearly every kind in each."""
    paths = [f"model.layers.{layer}" for layer in range(LAYERS)]
    ops = [op for layer, at in enumerate(paths) for op in _layer(at, 8 if layer % 2 else None)]
    weights = [weight for at in paths for weight in _weights(at)]
    ends = ("model.embed_tokens.weight", "model.norm.weight")
    return Plan(
        architecture="TinyForCausalLM",
        module="tiny.modeling_tiny",
        size=64,
        ops=(
            Embed("model.embed_tokens", 100, 64, 8.0),
            *ops,
            Norm("model.norm", 64, 1e-5, "plain"),
            Head("lm_head", 100, 64, False),
        ),
        weights=(*weights, *(Weight(name, name) for name in ends)),
        ties=(Tie("lm_head.weight", "model.embed_tokens.weight"),),
        forwards=(
            Forward("TinyAttention", "tiny.modeling_tiny", "TinyAttention",
                    "def forward(self, x):\n    return self.qkv_proj(x)\n", ("q_proj + k_proj + v_proj -> qkv_proj",),
                    tuple(f"{at}.self_attn" for at in paths), ("qkv_proj", "qkv_proj_sizes", "attn")),
            Forward("TinyMLP", "tiny.modeling_tiny", "TinyMLP", "def forward(self, x): ...\n",
                    ("gate_proj + up_proj -> gate_up_proj",), tuple(f"{at}.mlp" for at in paths),
                    ("gate_up_proj", "act_and_mul")),
            Forward("TinyModel", "tiny.modeling_tiny", "TinyModel", "def forward(self, x): ...\n",
                    ("stages",), ("model",), ("hands_on",)),
        ),
        wrapper=Wrapper("model", ("input_ids", "position_ids"), "lm_head", ("/ 3.0", "tanh")),
        stages=Stages("model", "model.layers", LAYERS, "hidden_states", tuple_output=False,
                      first=("model.embed_tokens",), last=("model.norm",)),
        tensor=True,
        refusals=(
            Refusal("gated", Reason.NO_GATED_KERNEL, "`act` is a plain ReLU", "model.layers.0.side",
                    Place("/x/site-packages/tiny/modeling_tiny.py", 7, 5), help="use silu"),
            Refusal("gated", Reason.NO_GATED_KERNEL, "`act` is a plain ReLU", "model.layers.1.side",
                    Place("/x/site-packages/tiny/modeling_tiny.py", 7, 5), help="use silu"),
            Refusal("experts", Reason.NOT_SPLIT, "no experts"),
        ),
        ignorable=(r".*rotary.*",),
    )  # fmt: skip


@pytest.fixture(scope="session")
def proven(plan) -> Plan:
    from hfspeed.plan import laws

    claims = dict.fromkeys(laws.claim(op) for op in plan.ops if isinstance(op, laws.FUSED))
    return plan.with_proofs(*(Proof(claim, "by hand", 1e-15, 1e-8) for claim in claims))
