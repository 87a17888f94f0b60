"""A bare matrix as a kernel has it: the author's numbers, rounded as the author's parameter is."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from hfspeed.plan import Whole


@pytest.fixture(autouse=True)
def _settings(serving: ModuleType) -> Iterator[None]:
    from vllm.config import VllmConfig, set_current_vllm_config

    with set_current_vllm_config(VllmConfig()):
        yield


class Router(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.shift = nn.Parameter(torch.empty(8, 32)), nn.Parameter(torch.empty(8))


def built(op: Whole, dtype: torch.dtype) -> tuple[Any, nn.Module]:
    from hfspeed.vllm.layers.linear import whole
    from hfspeed.vllm.site import Site

    root = nn.Module()
    root.router = Router()
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        whole(op, Site(root, SimpleNamespace(), "some quantisation", "", 0, 1))
    finally:
        torch.set_default_dtype(before)
    return root.router.weight_linear, root.router


@pytest.mark.parametrize("vector", ["", "shift"])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_what_the_author_computes(dtype: torch.dtype, wide: bool, vector: str) -> None:
    torch.manual_seed(0)
    op = Whole("router.weight_linear", 32, 8, bool(vector), matrix="weight", vector=vector, wide=wide)
    layer, router = built(op, dtype)
    assert "weight" not in router._parameters  # whoever still reads it must fail, not read something else
    assert ("shift" in router._parameters) == (not vector)
    weight, shift = torch.randn(8, 32), torch.randn(8)  # in float32 on disk, whatever is served
    for name, value in {"weight": weight, **({"bias": shift} if vector else {})}.items():
        parameter = layer.get_parameter(name)
        parameter.weight_loader(parameter, value)
    kind = torch.float32 if wide else dtype
    x = torch.randn(5, 2, 32).to(dtype).to(kind).transpose(0, 1)
    wanted = functional.linear(x, weight.to(dtype).to(kind), shift.to(dtype).to(kind) if vector else None)
    layer.quant_method.process_weights_after_loading(layer)
    got = layer(x)
    assert got.dtype == kind
    tight = {"rtol": 2e-2, "atol": 2e-2} if kind == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(got, wanted, **tight)


def test_another_shape_is_told() -> None:
    layer, _ = built(Whole("router.weight_linear", 32, 8, False, matrix="weight"), torch.float32)
    with pytest.raises(AssertionError):
        layer.weight.weight_loader(layer.weight, torch.zeros(8, 1))
