"""vLLM's CPU kernel of experts gives what the plan's formula says, for every form that is handed to it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

FORMS: list[tuple[str, dict[str, Any]]] = [
    ("silu", {"act": "silu"}),
    ("gelu", {"act": "gelu"}),
    ("gelu_tanh", {"act": "gelu_tanh"}),
    ("swigluoai", {"act": "silu", "limit": 7.0, "alpha": 1.702, "beta": 1.0, "interleaved": True}),
]


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize(("kernel", "form"), FORMS)
def test_the_kernel_is_the_formula(kernel: str, form: dict[str, Any], biases: bool) -> None:
    from vllm._custom_ops import cpu_prepack_moe_weight

    from hfspeed.pattern.expert_math import computed
    from hfspeed.plan import Experts
    from hfspeed.vllm.kernels import CPU_EXPERTS, hfspeed_cpu_experts
    from hfspeed.vllm.versions import kernel_name

    names = {"up_bias": ("up_bias",), "down_bias": "down_bias"} if biases else {}
    op = Experts("at", 4, 2, 64, 32, takes=("x", "i", "w"), up=("up",), down="down", **names, **form)
    assert kernel_name(op, 1) == kernel
    source = torch.Generator().manual_seed(2)
    shapes = {"up": (4, 64, 64), "down": (4, 64, 32), "up_bias": (4, 64), "down_bias": (4, 64)}
    tensors = {name: torch.randn(shape, generator=source) * 0.2 for name, shape in shapes.items()}
    tokens = torch.randn(5, 64, generator=source) * 8  # so that clamps act
    ids = torch.stack([torch.randperm(4, generator=source)[:2] for _ in range(5)])
    weights = torch.rand(5, 2, generator=source)
    packed = [cpu_prepack_moe_weight(tensors[name].clone(), "vec") for name in ("up", "down")]
    given = (tensors["up_bias"], tensors["down_bias"]) if biases else (None, None)
    wanted = (computed(op, tensors, tokens[:, None].expand(-1, 2, -1), ids) * weights[..., None]).sum(1)
    for run in (hfspeed_cpu_experts, CPU_EXPERTS):
        out = run(tokens, weights.double(), ids, *packed, *given, kernel, "vec")
        assert torch.allclose(out, wanted, rtol=1e-4, atol=1e-4 * float(wanted.abs().max()))


@pytest.mark.parametrize(
    "form",
    [
        {"act": "relu2"},
        {"act": "silu", "gated": False},
        {"act": "silu", "limit": 7.0},
        {"act": "silu", "limit": 6.0, "alpha": 1.702, "beta": 1.0},
        {"act": "silu", "weighs_input": True},
        {"act": "silu", "up_bias": ("b",)},
    ],
)
def test_forms_without_a_kernel_here(form: dict[str, Any]) -> None:
    from hfspeed.plan import Experts
    from hfspeed.vllm.versions import kernel_name

    assert kernel_name(Experts("at", 4, 2, 64, 32, takes=("x", "i", "w"), up=("up",), down="down", **form), 1) is None
