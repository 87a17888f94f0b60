"""Stateful functions are known by transformers' marker, by name, and as torch's own modules; nothing else is."""

from __future__ import annotations

import functools

import torch
from torch import nn

from hfspeed.graph.record import record
from hfspeed.graph.stateful import is_stateful, kernel_at, stateful


def use_kernel_func_from_hub_with_fallback(name: str, package: str):
    """As transformers writes it: keywords that the function does not know are dropped."""

    def mark(function):
        @functools.wraps(function)
        def call(*args, **keywords):
            return function(*args, **{n: v for n, v in keywords.items() if n in ("x", "weight")})

        return call

    return mark


@use_kernel_func_from_hub_with_fallback("causal_conv1d_fn", "causal_conv1d")
def anything(x, weight):
    """A causal convolution, by its marker."""
    return torch.stack(
        [nn.functional.pad(x, (1, 0))[..., t : t + 2].mul(weight).sum(-1) for t in range(x.shape[-1])], -1
    )


def rnn_scan(hidden_states, recurrent_gate, reset, recurrent_states=None):
    """Known by its name, and by what it computes."""
    state, out = torch.zeros_like(hidden_states[:, 0]), []
    for t in range(hidden_states.shape[1]):
        kept = recurrent_gate[:, t] if reset is None else recurrent_gate[:, t] * ~reset[:, t]
        state = kept * state + hidden_states[:, t]
        out.append(state)
    return torch.stack(out, 1), state


def plain_sum(x):
    """Known by nobody."""
    return x.cumsum(-1)


class Three(nn.Module):
    """Calls one of each, and two of torch's modules."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 2))
        self.mixing = nn.Conv1d(4, 4, 3, groups=4, padding=2)
        self.centred = nn.Conv1d(4, 4, 3, groups=4, padding=1)
        self.later = nn.ZeroPad2d((0, 0, 1, -1))
        self.kept = rnn_scan

    def forward(self, x):
        """``[1, 4, tokens]`` to the same."""
        x = anything(x, self.weight, position_ids=7)
        x, _ = self.kept(x, x, None)
        x = self.centred(self.mixing(x)[..., : x.shape[-1]])
        return plain_sum(self.later(x))


def test_what_is_stateful():
    assert stateful(anything).kind == "convolution"
    assert stateful(rnn_scan).kind == "linear_recurrence"
    assert stateful(plain_sum) is None
    assert stateful(functools.partial(rnn_scan)) is None


def test_calls_are_leaves_and_give_the_same():
    model = Three().eval()
    x = torch.randn(1, 4, 9)
    wanted = model(x)
    found = record(model, {"x": x}, keep_values=True)
    torch.testing.assert_close(found.output, wanted)
    kinds = [kernel_at(node).kind for node in found.calls[""].graph.nodes if is_stateful(node)]
    assert kinds == ["convolution", "linear_recurrence", "convolution", "shift"]
    names = [getattr(node.target, "__name__", "") for node in found.calls[""].graph.nodes]
    assert "pad" not in names
    assert model.kept is rnn_scan
    assert globals()["anything"] is anything


def test_on_meta_and_on_long_rows_there_is_no_loop():
    model = Three().eval()
    long = record(model, {"x": torch.randn(1, 4, 5000)})
    assert long.output.shape == (1, 4, 5000)
    hollow = Three().eval().to("meta")
    assert record(hollow, {"x": torch.randn(1, 4, 1 << 17, device="meta")}).output.shape == (1, 4, 1 << 17)
