"""The op that computes with states, on tokens scheduled as vLLM schedules them, without an engine."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from hfspeed.plan import History, Recurrence
from hfspeed.plan.settings import shown
from hfspeed.recurrences import KERNELS, kernel_of

FILE = Path(__file__).parent.parent / "recurrence" / "loops.py"
LENGTHS = (37, 5, 80)


@pytest.fixture(scope="module")
def loops() -> Any:
    spec = importlib.util.spec_from_file_location("recurrence_loops", FILE)
    assert spec is not None
    assert spec.loader is not None
    sys.modules["recurrence_loops"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", ["model.smear", "model.layers.2.mixer", "model.blocks.1.mixers.2"])
def test_states_have_a_number(serving: ModuleType, path: str) -> None:
    """vLLM finds a layer's number by the one number in its name; a module beside the layers counts as the first."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.models.utils import extract_layer_index

    from hfspeed.vllm.site import Site
    from hfspeed.vllm.states import states_of

    with set_current_vllm_config(VllmConfig()):
        site = Site(torch.nn.Module(), None, None, "", 0, 1)
        holder = states_of(path, site)
    numbers = [int(word) for word in path.split(".") if word.isdigit()] or [0]
    assert extract_layer_index(holder.prefix) == numbers[0]


class Sums(torch.nn.Module):
    """Sums of what came before, in two layouts."""

    def forward(self, x: torch.Tensor, pair: tuple[torch.Tensor, torch.Tensor], flag: bool = False) -> Any:
        """``[1, tokens, 4]``, and a pair of ``[1, 2, tokens]``, to both, and the last sum."""
        assert flag
        first = x.cumsum(1) * pair[1].transpose(1, 2)[..., :1]
        return first, pair[0].cumsum(2), x.sum(1)


def test_whole_histories(scheduled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.config import VllmConfig, set_current_vllm_config

    from hfspeed.vllm import states as pages
    from hfspeed.vllm.layers.history import Remembering
    from hfspeed.vllm.states import States

    torch.manual_seed(0)
    with set_current_vllm_config(VllmConfig()):
        holder = States("layer.states")
    op = History("m", ("1xTx4", "1x2xT", "1x2xT"), ("1xTx4", "1x2xT", "none"))
    model = Sums()
    run = Remembering(op, model.forward, holder, 40)
    holder.kv_cache = (torch.randint(-128, 127, (5, holder.bytes), dtype=torch.int8),)
    context = SimpleNamespace(no_compile_layers={"layer.states": holder}, attn_metadata=None)
    monkeypatch.setattr(pages, "get_forward_context", lambda: context)
    x, one, two = torch.randn(2, 1, 40, 4), torch.randn(2, 1, 2, 40), torch.randn(2, 1, 2, 40)
    wanted = [model(x[n], (one[n], two[n]), flag=True) for n in range(2)]
    steps = [{0: (0, 7)}, {0: (7, 8), 1: (0, 30)}, {0: (8, 9), 1: (30, 31)}, {1: (31, 40), 0: (9, 11)}, {0: (0, 3)}]
    for step in steps:
        rows = sorted(step.items(), key=lambda item: item[1][1] - item[1][0] > 1 or item[1][0] == 0)
        singles = [1 + n for n, (start, stop) in rows if stop - start == 1 and start]
        pieces = [(1 + n, stop - start, start > 0) for n, (start, stop) in rows[len(singles) :]]
        context.attn_metadata = {"layer.states": scheduled.metadata(singles, pieces)}

        def laid(value: torch.Tensor, dim: int, rows: Any = rows) -> torch.Tensor:
            parts = [value[n].narrow(dim, start, stop - start) for n, (start, stop) in rows]
            return torch.cat([*parts, parts[0].narrow(dim, 0, 1)], dim)

        first, second, last = run(laid(x, 1), (laid(one, 2), laid(two, 2)), flag=True)
        assert last is None
        at = 0
        for n, (start, stop) in rows:
            count = stop - start
            torch.testing.assert_close(first.narrow(1, at, count), wanted[n][0].narrow(1, start, count))
            torch.testing.assert_close(second.narrow(2, at, count), wanted[n][1].narrow(2, start, count))
            at += count


@pytest.mark.parametrize(("told", "kept"), [("auto", 4), ("float32", 4), ("bfloat16", 2), ("float16", 2)])
def test_states_are_kept_as_vllm_is_told(told: Any, kept: int) -> None:
    """Those that sums grow in; the last inputs of a convolution are as the model."""
    from vllm.config import VllmConfig, set_current_vllm_config

    from hfspeed.recurrences.call import Called
    from hfspeed.vllm.states import States

    config = VllmConfig()
    config.cache_config.mamba_ssm_cache_dtype = told  # now, because vLLM takes float32 on some CPUs whatever it is told
    with set_current_vllm_config(config):
        holder = States("layer.states")
        for kind, state in (("ssd", (4, 8, 16)), ("convolution", (8, 3))):
            op = Recurrence("m", kind, kind, state, kernel_of(kind).roles, ())
            holder.add(Called(op, kernel_of(kind)), torch.bfloat16)
    assert [slot.dtype.itemsize for slot in holder.slots] == [kept, 2]
    assert holder.bytes == 512 * kept + 48


def test_every_kind_in_one_page(loops: Any, scheduled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three sequences in random pieces, mixed with single tokens; pages hold rubbish before, and padding follows."""
    from vllm.config import VllmConfig, set_current_vllm_config

    from hfspeed.vllm import states as pages
    from hfspeed.vllm.layers import recurrence

    torch.manual_seed(0)
    with set_current_vllm_config(VllmConfig()):
        holder = pages.States("layer.states")
        parts, given = {}, {}
        for kernel in KERNELS:
            made, chosen = loops.operands(kernel.kind, 1, sum(LENGTHS))
            narrow = {r: v.float() if v.is_floating_point() else v for r, v in made.items()}
            operands = dict.fromkeys(kernel.roles) | narrow
            words = tuple(shown(name, value) for name, value in chosen.items())
            pair = kernel.always_pair
            op = Recurrence("m", kernel.kind, kernel.kind, kernel.state(operands), kernel.roles, words, pair=pair)
            parts[kernel.kind] = recurrence.Stateful(op, holder, 1)
            given[kernel.kind] = (operands, dict(kernel.usual) | chosen)
    holder.kv_cache = (torch.randint(-128, 127, (9, holder.bytes + 48), dtype=torch.int8),)
    context = SimpleNamespace(no_compile_layers={"layer.states": holder}, attn_metadata=None)
    monkeypatch.setattr(pages, "get_forward_context", lambda: context)
    done = {kind: [[] for _ in LENGTHS] for kind in parts}
    begins = [sum(LENGTHS[:number]) for number in range(len(LENGTHS))]
    random.seed(1)
    at = [0] * len(LENGTHS)
    while any(one < length for one, length in zip(at, LENGTHS, strict=True)):
        singles, pieces = [], []
        for number, length in enumerate(LENGTHS):
            tokens = min(length - at[number], random.choice([0, 1, 1, 2, 9, 33]))
            if tokens == 1 and at[number]:
                singles.append(number)
            elif tokens:
                pieces.append((number, tokens))
        rows = [(number, 1) for number in singles] + pieces
        if not rows:
            continue
        found = scheduled.metadata([3 + n for n in singles], [(3 + n, tokens, at[n] > 0) for n, tokens in pieces])
        context.attn_metadata = {"layer.states": found}
        index = torch.cat([torch.arange(begins[n] + at[n], begins[n] + at[n] + tokens) for n, tokens in rows])
        index = torch.cat([index, torch.zeros(2, dtype=torch.long)])
        for kind, part in parts.items():
            kernel, (operands, chosen) = kernel_of(kind), given[kind]
            mine = {
                r: v.index_select(kernel.tokens[r], index) if r in kernel.tokens and v is not None else v
                for r, v in operands.items()
            }
            out = part(**mine, **chosen)
            out = out[0] if kernel.always_pair else out
            start = 0
            for n, tokens in rows:
                done[kind][n].append(out.narrow(kernel.axis, start, tokens))
                start += tokens
            assert not out.narrow(kernel.axis, start, 2).any()
        for n, tokens in rows:
            at[n] += tokens
    for kind in parts:
        kernel, (operands, chosen) = kernel_of(kind), given[kind]
        for number, length in enumerate(LENGTHS):
            alone = {
                r: v.narrow(kernel.tokens[r], begins[number], length) if r in kernel.tokens and v is not None else v
                for r, v in operands.items()
            }
            wanted = loops.LOOPS[kind](alone, chosen)
            torch.testing.assert_close(torch.cat(done[kind][number], kernel.axis), wanted, rtol=2e-3, atol=2e-4)
