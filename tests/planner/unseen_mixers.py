"""Mixers in the shapes that remote code has: libraries behind try and except, and loops over tokens of its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

try:
    from fla.ops.gla import chunk_gla
except ImportError:
    chunk_gla = None

try:
    from mamba_ssm.ops.selective_scan_interface import selective_scan_fn
except ImportError:

    def selective_scan_fn(
        u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False, return_last_state=False
    ):
        """The library's function, token by token."""
        delta = delta if delta_bias is None else delta + delta_bias[:, None]
        delta = functional.softplus(delta) if delta_softplus else delta
        decay = torch.exp(delta[..., None] * A[:, None])
        added = (delta * u)[..., None] * B.transpose(1, 2)[:, None]
        state, found = torch.zeros_like(added[:, :, 0]), []
        for token in range(u.shape[2]):
            state = decay[:, :, token] * state + added[:, :, token]
            found.append((state * C[:, None, :, token]).sum(-1))
        out = torch.stack(found, 2)
        out = out if D is None else out + u * D[:, None]
        out = out if z is None else out * functional.silu(z)
        return (out, state) if return_last_state else out


try:
    from causal_conv1d import causal_conv1d_fn
except ImportError:

    def causal_conv1d_fn(x, weight, bias=None, activation=None):
        """The library's function, by torch's convolution."""
        out = functional.conv1d(x, weight[:, None], bias, padding=weight.shape[1] - 1, groups=x.shape[1])
        out = out[..., : x.shape[-1]]
        return functional.silu(out) if activation in {"silu", "swish"} else out


def naive_recurrent_gla(q, k, v, gk):
    """Gated linear attention, token by token; no library has this name."""
    state, out = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1]), torch.zeros_like(v)
    for token in range(q.shape[2]):
        state = state * gk[:, :, token].exp()[..., None] + k[:, :, token, :, None] * v[:, :, token, None]
        out[:, :, token] = (q[:, :, token, :, None] * state).sum(-2)
    return out


class GatedLinear(nn.Module):
    """Gated linear attention, by a library if it is there."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.g_proj = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gk_proj = nn.Sequential(nn.Linear(width, 8, bias=False), nn.Linear(8, width))
        self.norm, self.o_proj = nn.RMSNorm(width // heads, eps=1e-6), nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        q, k, v, gk = (
            one(x).view(batch, tokens, self.heads, -1).transpose(1, 2)
            for one in (self.q_proj, self.k_proj, self.v_proj, self.gk_proj)
        )
        gk = functional.logsigmoid(gk) / 16
        out = naive_recurrent_gla(q, k, v, gk) if chunk_gla is None else chunk_gla(q, k, v, gk)[0]
        out = self.norm(out.transpose(1, 2)).reshape(batch, tokens, width)
        return self.o_proj(out * functional.silu(self.g_proj(x)))


class Selective(nn.Module):
    """A selective scan with its gate and the softplus of its steps in the kernel."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        inner = 2 * width
        self.rank, self.n = heads, 8
        self.in_proj, self.out_proj = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, 4, groups=inner, padding=3)
        self.x_proj, self.dt_proj = nn.Linear(inner, heads + 16, bias=False), nn.Linear(heads, inner)
        self.A_log, self.D = nn.Parameter(torch.randn(inner, 8)), nn.Parameter(torch.ones(inner))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u, z = self.in_proj(x).transpose(1, 2).chunk(2, dim=1)
        u = causal_conv1d_fn(u, self.conv1d.weight.squeeze(1), self.conv1d.bias, activation="silu")
        dt, b, c = self.x_proj(u.transpose(1, 2)).split([self.rank, self.n, self.n], dim=-1)
        out = selective_scan_fn(
            u,
            (dt @ self.dt_proj.weight.t()).transpose(1, 2),
            -torch.exp(self.A_log.float()),
            b.transpose(1, 2),
            c.transpose(1, 2),
            self.D.float(),
            z=z,
            delta_bias=self.dt_proj.bias.float(),
            delta_softplus=True,
        )
        return self.out_proj(out.transpose(1, 2))


class Lru(nn.Module):
    """A gated linear recurrence with a loop of its own behind a plain convolution."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.x, self.y, self.o, self.a, self.i = (nn.Linear(width, width) for _ in range(5))
        self.lam, self.conv = nn.Parameter(torch.randn(width)), nn.Conv1d(width, width, heads, groups=width, padding=3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = functional.gelu(self.y(x))
        u = self.conv(self.x(x).transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)
        rate = -8 * functional.softplus(self.lam) * torch.sigmoid(self.a(u))
        kept, added = rate.exp(), (1 - (2 * rate).exp()).sqrt() * torch.sigmoid(self.i(u)) * u
        state, found = torch.zeros_like(added[:, 0]), []
        for token in range(x.shape[1]):
            state = kept[:, token] * state + added[:, token]
            found.append(state)
        return self.o(torch.stack(found, 1) * gate)


class Weighted(nn.Module):
    """A state of outer products with data-dependent decay, in a loop; torch's own module shifts the tokens."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.shift = heads, nn.ZeroPad2d((0, 0, 1, -1))
        self.r, self.k, self.v, self.w, self.o = (nn.Linear(width, width, bias=False) for _ in range(5))
        self.mix, self.u = nn.Parameter(torch.rand(4, width)), nn.Parameter(torch.randn(heads, width // heads))
        self.ln = nn.GroupNorm(heads, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        before = self.shift(x) - x
        mixed = (one(x + before * m) for one, m in zip((self.r, self.k, self.v, self.w), self.mix, strict=True))
        r, k, v, w = (one.view(batch, tokens, self.heads, -1) for one in mixed)
        state, found = x.new_zeros(batch, self.heads, k.shape[-1], k.shape[-1]), []
        for token in range(tokens):
            pair = k[:, token, :, :, None] * v[:, token, :, None]
            found.append((r[:, token, :, None] @ (state + self.u[..., None] * pair)).squeeze(-2))
            state = state * torch.exp(-torch.exp(w[:, token]))[..., None] + pair
        out = self.ln(torch.stack(found, 1).reshape(batch * tokens, width))
        return self.o(out.view(batch, tokens, width))


class Short(nn.Module):
    """A gated short convolution whose weights are parameters of the mixer itself."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.weight, self.bias = nn.Parameter(torch.randn(width, heads)), nn.Parameter(torch.randn(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u, gate = self.inner(x).chunk(2, -1)
        u = causal_conv1d_fn(u.transpose(1, 2), self.weight, self.bias, activation="silu").transpose(1, 2)
        return self.outer(u * gate)


MIXERS = {"gated": GatedLinear, "selective": Selective, "lru": Lru, "weighted": Weighted, "short": Short}


class UnseenConfig(PreTrainedConfig):
    """Sizes, and which mixer."""

    model_type = "unseen"

    def __init__(self, mixer: str = "gated", hidden_size: int = 32, **kwargs: Any) -> None:
        self.mixer, self.hidden_size, self.vocab_size, self.heads = mixer, hidden_size, 64, 4
        super().__init__(**kwargs)


class UnseenBlock(nn.Module):
    """A mixer, and what goes past it."""

    def __init__(self, config: UnseenConfig) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(config.hidden_size, eps=1e-6)
        self.mixer = MIXERS[config.mixer](config.hidden_size, config.heads)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mixer(self.norm(x))


class UnseenModel(PreTrainedModel):
    """The decoder."""

    config_class = UnseenConfig
    base_model_prefix = "model"

    def __init__(self, config: UnseenConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(UnseenBlock(config) for _ in range(2))
        self.post_init()

    def forward(self, input_ids=None, inputs_embeds=None, **_: Any) -> BaseModelOutputWithPast:
        flow = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        for layer in self.layers:
            flow = layer(flow)
        return BaseModelOutputWithPast(last_hidden_state=flow)


class UnseenForCausalLM(PreTrainedModel, GenerationMixin):
    """The decoder with its output projection."""

    config_class = UnseenConfig
    base_model_prefix = "model"

    def __init__(self, config: UnseenConfig) -> None:
        super().__init__(config)
        self.model, self.lm_head = UnseenModel(config), nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.model.embed_tokens

    def forward(self, input_ids=None, **kwargs: Any) -> CausalLMOutputWithPast:
        return CausalLMOutputWithPast(logits=self.lm_head(self.model(input_ids=input_ids, **kwargs).last_hidden_state))
