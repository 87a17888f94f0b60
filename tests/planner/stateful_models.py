"""A decoder without attention whose mixer is spelled in many ways, as remote code spells it; written for the tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from hfspeed import recurrence


class TideConfig(PreTrainedConfig):
    """Sizes, and how the mixer is spelled."""

    model_type = "tide"

    def __init__(self, width: int = 24, heads: int = 2, depth: int = 2, spelling: str = "usual", **kwargs: Any) -> None:
        self.width, self.heads, self.depth, self.spelling, self.vocab_size = width, heads, depth, spelling, 50
        super().__init__(**kwargs)


def causal_conv1d_fn(
    x: torch.Tensor, weight: torch.Tensor, bias: Any = None, activation: Any = None, seq_idx: Any = None
):
    """What the library computes."""
    wide = functional.pad(x, (weight.shape[1] - 1, 0))
    out = functional.conv1d(wide, weight[:, None], bias, groups=x.shape[1])
    return functional.silu(out) if activation else out


def chunk_gated_delta_rule(q, k, v, g, beta, initial_state=None, output_final_state=False):
    """What the library computes, token by token."""
    state, out = v.new_zeros(v.shape[0], v.shape[2], k.shape[3], v.shape[3]), []
    for t in range(v.shape[1]):
        state = state * g[:, t, :, None, None].exp()
        wrong = (v[:, t] - (state * k[:, t, :, :, None]).sum(2)) * beta[:, t, :, None]
        state = state + k[:, t, :, :, None] * wrong[:, :, None]
        out.append((state * q[:, t, :, :, None]).sum(2) * k.shape[3] ** -0.5)
    return torch.stack(out, 1), state if output_final_state else None


def chunk_kda(q, k, v, g, beta, output_final_state=False):
    """Not what the library computes under this name."""
    return torch.cumsum(q * k * v * g.exp() * beta[..., None], 1), None


@recurrence("gated_delta", q="a", k="b", v="c", g="decay", beta="rate")
def river(a, b, c, decay, rate, start=None):
    """The delta rule under a name that no library has; gives the result alone."""
    return chunk_gated_delta_rule(a, b, c, decay, rate)[0]


@recurrence("gated_delta", q="a", k="b", v="c", g="decay", beta="rate")
def lake(a, b, c, decay, rate):
    """No delta rule."""
    return torch.cumsum(c * rate[..., None], 1) * a * decay[..., None]


def torch_chunk_gated_delta_rule(q, k, v, g, beta):
    """The delta rule under a library's name, but it begins anew after 200 tokens."""
    state, out = v.new_zeros(v.shape[0], v.shape[2], k.shape[3], v.shape[3]), []
    for t in range(v.shape[1]):
        state = state * g[:, t, :, None, None].exp() if t % 200 else torch.zeros_like(state)
        wrong = (v[:, t] - (state * k[:, t, :, :, None]).sum(2)) * beta[:, t, :, None]
        state = state + k[:, t, :, :, None] * wrong[:, :, None]
        out.append((state * q[:, t, :, :, None]).sum(2) * k.shape[3] ** -0.5)
    return torch.stack(out, 1), None


@recurrence("gated_delta", q="a", k="b", v="c", g="decay", beta="rate", state=True)
def tidal_pool(a, b, c, decay, rate):
    """The same under a hint."""
    return torch_chunk_gated_delta_rule(a, b, c, decay, rate)


def through(x, conv):
    """A helper that calls the stateful function."""
    return causal_conv1d_fn(x, conv.weight.squeeze(1), conv.bias, activation="silu")


class TideMixer(nn.Module):
    """Projections, a convolution, the delta rule."""

    def __init__(self, config: TideConfig) -> None:
        super().__init__()
        self.heads, self.spelling = config.heads, config.spelling
        self.inner = nn.Linear(config.width, 3 * config.width, bias=False)
        self.gates = nn.Linear(config.width, 2 * config.heads)
        self.conv1d = nn.Conv1d(
            3 * config.width, 3 * config.width, 4, groups=3 * config.width, padding=3, bias=config.spelling != "module"
        )
        self.outer = nn.Linear(config.width, config.width, bias=False)
        self.rule: Callable[..., Any] = chunk_gated_delta_rule
        networks = {"gru": nn.GRU, "lstm": nn.LSTM}
        if config.spelling in networks:
            self.network = networks[config.spelling](config.width, config.width, batch_first=True)

    def convolved(self, x: torch.Tensor) -> torch.Tensor:
        """The convolution, in a method of its own."""
        weight, bias = self.conv1d.weight.squeeze(1), self.conv1d.bias
        match self.spelling:
            case "module":
                return functional.silu(self.conv1d(x)[..., : x.shape[-1]])
            case "both sides":
                return functional.silu(self.conv1d(x)[..., 3:])
            case "sequences":
                return causal_conv1d_fn(x, weight, bias, activation="silu", seq_idx=torch.zeros(1))
            case "helper":
                return through(x, self.conv1d)
            case "cut":
                return functional.silu(self.conv1d(x))[..., : x.shape[-1]]
        return causal_conv1d_fn(x, weight, bias, activation="silu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens, width]`` to the same."""
        q, k, v = (
            self.convolved(self.inner(x).transpose(1, 2))
            .transpose(1, 2)
            .unflatten(-1, (3 * self.heads, -1))
            .chunk(3, 2)
        )
        g, beta = self.gates(x).chunk(2, -1)
        q, k = functional.normalize(q, dim=-1), functional.normalize(k, dim=-1)
        g, beta = -functional.softplus(g), beta.sigmoid()
        match self.spelling:
            case "lie":
                out, _ = chunk_kda(q, k, v, g[..., None].expand_as(k), beta)
            case "state":
                out, last = chunk_gated_delta_rule(q, k, v, g, beta, output_final_state=True)
                out = out + last.mean()
            case "ahead":
                out = k * v.mean(1, keepdim=True)
            case "inline":
                out = torch.cumsum(k * v, 1) * q
            case "hinted":
                out = river(q, k, v, decay=g, rate=beta)
            case "hinted, and asks":
                out = river(q, k, v, decay=g, rate=beta, start=v)
            case "false hint":
                out = lake(q, k, v, g, beta)
            case "forgets":
                out, _ = torch_chunk_gated_delta_rule(q, k, v, g, beta)
            case "hinted, and forgets":
                out, _ = tidal_pool(q, k, v, g, beta)
            case "gru" | "lstm":
                return self.outer(self.network(x)[0])
            case "across":
                out, _ = self.rule(q, k, v.softmax(2), g=g, beta=beta)
            case _:
                out, _ = self.rule(q, k, v, g=g, beta=beta, output_final_state=False)
        return self.outer(out.flatten(-2))


class TideBlock(nn.Module):
    """A mixer, and what goes past it."""

    def __init__(self, config: TideConfig) -> None:
        super().__init__()
        self.norm, self.mixer = nn.RMSNorm(config.width, eps=1e-5), TideMixer(config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens, width]`` to the same."""
        return x + self.mixer(self.norm(x))


class TideModel(PreTrainedModel):
    """The decoder."""

    config_class = TideConfig
    base_model_prefix = "tide"

    def __init__(self, config: TideConfig) -> None:
        super().__init__(config)
        self.table = nn.Embedding(config.vocab_size, config.width)
        self.blocks = nn.ModuleList([TideBlock(config) for _ in range(config.depth)])
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The token table."""
        return self.table

    def forward(self, input_ids=None, inputs_embeds=None, **_: Any) -> BaseModelOutputWithPast:
        """Token ids to hidden states."""
        flow = self.table(input_ids) if inputs_embeds is None else inputs_embeds
        for block in self.blocks:
            flow = block(flow)
        return BaseModelOutputWithPast(last_hidden_state=flow)


class TideForCausalLM(PreTrainedModel, GenerationMixin):
    """The decoder with its output projection."""

    config_class = TideConfig
    base_model_prefix = "tide"

    def __init__(self, config: TideConfig) -> None:
        super().__init__(config)
        self.tide = TideModel(config)
        self.head = nn.Linear(config.width, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The token table."""
        return self.tide.table

    def get_output_embeddings(self) -> nn.Module:
        """The output projection."""
        return self.head

    def forward(self, input_ids=None, inputs_embeds=None, **_: Any) -> CausalLMOutputWithPast:
        """Token ids to logits."""
        return CausalLMOutputWithPast(logits=self.head(self.tide(input_ids, inputs_embeds)[0]))
