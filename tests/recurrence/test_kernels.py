"""Every kernel against a loop over tokens, in pieces of any length; and what each refuses."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from hfspeed.graph.exact import Exact
from hfspeed.recurrences import KERNELS, Unsupported, kernel_of, named

sys.path.insert(0, str(Path(__file__).parent))
import loops

KINDS = [kernel.kind for kernel in KERNELS]
PIECES = (3, 150, 1, 1, 65)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_loop_whatever_the_pieces(kind):
    torch.manual_seed(0)
    kernel = kernel_of(kind)
    given, chosen = loops.operands(kind, 2, sum(PIECES))
    given, chosen = dict.fromkeys(kernel.roles) | given, dict(kernel.usual) | chosen
    wanted = loops.LOOPS[kind](given, chosen)
    state = torch.zeros(2, *kernel.state(given), dtype=torch.float64)
    done, start = [], 0
    with Exact():
        for tokens in PIECES:
            mine = given | {
                role: given[role].narrow(dim, start, tokens)
                for role, dim in kernel.tokens.items()
                if given[role] is not None
            }
            out, state = kernel.run(mine, chosen, state)
            done.append(out)
            start += tokens
    assert state.shape[1:] == kernel.state(given)
    torch.testing.assert_close(torch.cat(done, kernel.axis), wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_matters(kind):
    """A kernel that forgot its state would pass nowhere: the second half alone gives something else."""
    torch.manual_seed(1)
    kernel = kernel_of(kind)
    given, chosen = loops.operands(kind, 1, 8)
    given, chosen = dict.fromkeys(kernel.roles) | given, dict(kernel.usual) | chosen
    half = given | {r: given[r].narrow(d, 4, 4) for r, d in kernel.tokens.items() if given[r] is not None}
    empty = torch.zeros(1, *kernel.state(given), dtype=torch.float64)
    alone, _ = kernel.run(half, chosen, empty)
    whole, _ = kernel.run(given, chosen, empty)
    assert not torch.allclose(alone, whole.narrow(kernel.axis, 4, 4))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_half_precision_stays_near(kind, dtype):
    torch.manual_seed(2)
    kernel = kernel_of(kind)
    given, chosen = loops.operands(kind, 2, 40)
    given, chosen = dict.fromkeys(kernel.roles) | given, dict(kernel.usual) | chosen
    narrow = {r: v.to(dtype) if v is not None and v.is_floating_point() else v for r, v in given.items()}
    given = {r: v.double() if v is not None and v.is_floating_point() else v for r, v in narrow.items()}
    out, state = kernel.run(narrow, chosen, torch.zeros(2, *kernel.state(given)))
    wanted = loops.LOOPS[kind](given, chosen)
    assert out.dtype is dtype
    assert state.isfinite().all()
    error = (out.double() - wanted).abs().max() / wanted.abs().max()
    assert error < (1e-4 if dtype is torch.float32 else 2e-2)


@pytest.mark.parametrize(
    ("function", "keywords", "told"),
    [
        ("causal_conv1d_fn", {"seq_idx": torch.zeros(1, 8)}, "seq_idx"),
        ("causal_conv1d_fn", {"initial_states": torch.zeros(1, 6, 3)}, "initial_states"),
        ("causal_conv1d_fn", {"activation": "relu"}, "relu"),
        ("mamba_chunk_scan_combined", {"z": torch.zeros(1, 8, 4, 3)}, "z"),
        ("mamba_chunk_scan_combined", {"A": torch.zeros(4, 3)}, "decays of"),
        ("chunk_gated_delta_rule", {"cu_seqlens": torch.zeros(3)}, "cu_seqlens"),
        ("chunk_gated_delta_rule", {"g": torch.zeros(1, 8, 4, 8)}, "decays of"),
        ("chunk_kda", {"g": torch.zeros(1, 8, 4)}, "decays of"),
        ("selective_scan_fn", {"B": torch.zeros(1, 1, 3, 8)}, "B of"),
        ("chunk_gated_delta_rule", {"beta": None}, "beta"),
    ],
)
def test_what_it_does_not_do_is_refused(function, keywords, told):
    kernel = named(function)
    given, _ = loops.operands(kernel.kind, 1, 8)
    with pytest.raises(Unsupported, match=told):
        kernel.check(kernel.bind((), (), given | keywords))


def test_what_libraries_drop_is_dropped():
    kernel = kernel_of("convolution")
    given, _ = loops.operands("convolution", 1, 8)
    keywords = {"position_ids": torch.zeros(1), "seq_idx": None}
    bound = kernel.bind(("x", "weight"), (given["x"], given["weight"]), keywords)
    assert bound.operands["bias"] is None
    assert not bound.pair
    assert kernel.bind((), (), given | {"return_final_states": True}).pair


def test_a_name_that_the_function_has_and_nobody_knows_is_refused():
    kernel = kernel_of("convolution")
    given, _ = loops.operands("convolution", 1, 8)
    with pytest.raises(Unsupported, match="dilation"):
        kernel.bind(("x", "weight", "dilation"), (given["x"], given["weight"], 2), {})


@pytest.mark.parametrize("kind", KINDS)
def test_single_tokens_change_states_where_they_lie(kind):
    """The same as a batch of sequences, for pages that are not in order; other pages stay what they are."""
    torch.manual_seed(3)
    kernel = kernel_of(kind)
    given, chosen = loops.operands(kind, 3, 2)
    given, chosen = dict.fromkeys(kernel.roles) | given, dict(kernel.usual) | chosen
    first, second = (
        given | {r: given[r].narrow(d, at, 1) for r, d in kernel.tokens.items() if given[r] is not None}
        for at in (0, 1)
    )
    pages = torch.tensor([4, 0, 2])
    states = torch.zeros(5, *kernel.state(given), dtype=torch.float64)
    with Exact():
        _, before = kernel.run(first, chosen, states[pages])
        states[pages] = before
        wanted, after = kernel.run(second, chosen, before)
        found = kernel.advance(second, chosen, states, pages)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(states[pages], after, rtol=1e-12, atol=1e-12)
    assert not states[[1, 3]].any()
