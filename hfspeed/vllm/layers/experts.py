"""Chosen experts in vLLM's kernels, with the author's own choice and weights; forms without a kernel run by expert."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from vllm.distributed import tensor_model_parallel_all_reduce
from vllm.model_executor.utils import set_weight_attrs

from hfspeed.errors import HfspeedError
from hfspeed.pattern.expert_math import between
from hfspeed.plan import Experts
from hfspeed.plan.shares import span
from hfspeed.reference.experts import shapes
from hfspeed.vllm.balance import copies
from hfspeed.vllm.gathers import sharded_tokens, whole_tokens
from hfspeed.vllm.kernels import CPU_EXPERTS, cpu_experts_isa, hfspeed_cpu_experts
from hfspeed.vllm.outside import outside
from hfspeed.vllm.site import Site
from hfspeed.vllm.versions import expert_kernel, is_quantised, kernel_name, share_of_experts


def experts(op: Experts, site: Site) -> None:
    """Put a module at ``op.path`` that is called as the author's is, and holds this rank's share."""
    author = site.root.get_submodule(op.path)
    name = kernel_name(op, site.ranks)
    layer: nn.Module
    if name is None:
        if site.vllm_config.parallel_config.enable_eplb:
            raise HfspeedError(
                f"{op.path}: no kernel here has this form of experts, so they are cut over ranks, and --enable-eplb "
                "cannot move them; leave it out"
            )
        layer = ByExpert(op, author, site)
        site.put(op.path, layer)
        outside(layer, site.prefix(op.path), (f"Tx{op.inputs}",), site)
    else:
        layer = Fused(op, author, name, site)
        site.put(op.path, layer)


class Called(nn.Module):
    """What both kinds have in common: how the author's block calls them, and what it may read off them."""

    def __init__(self, op: Experts, author: nn.Module) -> None:
        super().__init__()
        for name, value in vars(author).items():
            if name not in vars(self) and not name.startswith("_"):
                setattr(self, name, value)
        self.op = op
        self.order = list(op.takes) if op.apart else list(inspect.signature(type(author).forward).parameters)[1:]
        self.homes: dict[str, str] = {}

    def given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Tokens ``[tokens, inputs]``, chosen experts and weights ``[tokens, top_k]``; who is nobody weighs nothing."""
        named = dict(zip(self.order, args, strict=False)) | kwargs
        tokens, ids, weights = (named[name] for name in self.op.takes)
        if self.op.skips:
            nobody = ids >= self.op.count
            ids, weights = ids.masked_fill(nobody, 0), weights.masked_fill(nobody, 0)
        return tokens, ids, weights


class Fused(Called):
    """vLLM's fused experts.

    The choice comes as one tensor ``[tokens, 2 * top_k]`` in float32, weights and then numbers, in the place of the
    router's logits, so that it goes wherever vLLM sends tokens. Numbers below 2**24 are exact in float32.
    """

    def __init__(self, op: Experts, author: nn.Module, kernel: str, site: Site) -> None:
        super().__init__(op, author)
        self.sharded = site.vllm_config.parallel_config.use_sequence_parallel_moe
        self.runner = expert_kernel(op, kernel, chosen, site)
        self.interleaved = kernel == "swigluoai"
        self.held = self.runner.routed_experts
        if self.held.local_num_experts < 1:  # kernels would read weights that are not there
            raise HfspeedError(
                f"{op.path}: {op.count} experts are too few for the ranks of --enable-expert-parallel, each of which "
                "needs one; take fewer ranks"
            )
        self.isa, self.act, self.ranks = cpu_experts_isa(self.held), kernel, share_of_experts(self.held)[1]
        matrices = dict.fromkeys(op.up, "w13_weight") | {op.down: "w2_weight"}
        biases = dict.fromkeys(op.up_bias, "w13_bias") | ({op.down_bias: "w2_bias"} if op.down_bias else {})
        self.homes = {name: f"runner.routed_experts.{home}" for name, home in {**matrices, **biases}.items()}
        for home in set() if is_quantised(self.held) else {*matrices.values(), *biases.values()}:
            parameter = getattr(self.held, home)
            parameter.weight_loader = self.load
            parameter.data.zero_()  # kernels may want more rows than there are

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """``[tokens, inputs]``: the weighted sum over each token's experts."""
        tokens, ids, weights = self.given(args, kwargs)
        if self.isa:
            held, run = self.held, CPU_EXPERTS if torch.compiler.is_compiling() else hfspeed_cpu_experts
            up, down = (held.w13_bias, held.w2_bias) if self.op.up_bias else (None, None)
            found = run(tokens, weights, ids, held.w13_weight, held.w2_weight, up, down, self.act, self.isa)
            return tensor_model_parallel_all_reduce(found) if self.ranks > 1 else found
        count = tokens.shape[0]
        choice = torch.cat([weights.float(), ids.float()], -1)
        if self.sharded:
            tokens, choice = sharded_tokens(tokens), sharded_tokens(choice)
        out: torch.Tensor = self.runner(tokens, choice)
        return whole_tokens(out, count) if self.sharded else out

    def load(self, parameter: nn.Parameter, loaded: torch.Tensor, name: str) -> None:
        """Put this rank's share of the author's tensor where the kernel has it.

        Args:
            parameter: the kernel's.
            loaded: for every expert; for one, where ``name`` has its number in front: ``3:w1.weight``.
            name: the author's.
        """
        op, (place, places) = self.op, share_of_experts(self.held)
        start, stop = span(op.inner, place, places)
        every, name, loaded = _numbered(op, name, loaded)
        for number in every:
            one = loaded[number - every[0]]
            one = one.t() if op.turned and one.ndim == 2 else one
            for home in (parameter.data[local] for local in copies(self.held, number, op.count)):
                if name == op.down:
                    home[: op.inputs, : stop - start].copy_(one[:, start:stop])
                elif name != op.down_bias:
                    self._load_up(home, one, name, slice(start, stop))
                elif place == 0:  # the shares are added up
                    home[: op.inputs].copy_(one)

    def _load_up(self, home: torch.Tensor, one: torch.Tensor, name: str, own: slice) -> None:
        """Rows of gate and up, of one expert: ``[rows, inputs]``, or ``[rows]`` of biases."""
        op, wide = self.op, own.stop - own.start
        names = op.up_bias if name in op.up_bias else op.up
        halves = home.shape[0] // 2
        if not op.gated:
            parts = {0: one}
            rooms = [home[:wide]]
        else:
            rooms = [home[::2], home[1::2]] if self.interleaved else [home[:halves], home[halves:]]
            if len(names) == 2:
                parts = {names.index(name): one}
            else:
                pair = (one[::2], one[1::2]) if op.interleaved else one.chunk(2)
                parts = dict(enumerate(pair[::-1] if op.swapped else pair))
        for number, part in parts.items():
            room = rooms[number][:wide]
            room[(slice(None), slice(op.inputs)) if room.ndim == 2 else slice(None)].copy_(part[own])


class ByExpert(Called):
    """One expert after another, for forms that no kernel has; every rank has a share of each expert's width."""

    def __init__(self, op: Experts, author: nn.Module, site: Site) -> None:
        super().__init__(op, author)
        self.rank, self.ranks = site.rank, site.ranks
        self.own = span(op.inner, site.rank, site.ranks)
        for name, shape in shapes(op).items():
            own = self.share(name, torch.empty(shape, device="meta")).shape
            share = nn.Parameter(torch.empty(own, dtype=torch.get_default_dtype()), requires_grad=False)
            set_weight_attrs(share, {"weight_loader": self.load})
            self.homes[name] = name.replace(".", "__")
            self.register_parameter(self.homes[name], share)

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """``[tokens, inputs]``: the weighted sum over each token's experts."""
        tokens, ids, weights = self.given(args, kwargs)
        out = torch.zeros(tokens.shape, dtype=torch.float32, device=tokens.device)
        for number in torch.unique(ids).tolist():
            token, slot = torch.where(ids == number)
            weight = weights[token, slot, None]
            given = tokens[token] * weight if self.op.weighs_input else tokens[token]
            found = self._through(number, given)
            out.index_add_(0, token, (found if self.op.weighs_input else found * weight).float())
        if self.ranks > 1:
            out = tensor_model_parallel_all_reduce(out)
        return out.to(tokens.dtype)

    def load(self, parameter: nn.Parameter, loaded: torch.Tensor, name: str) -> None:
        """Keep this rank's share of the author's tensor ``name``; see `Fused.load`."""
        every, name, loaded = _numbered(self.op, name, loaded)
        home = parameter.data[every.start : every.stop]
        if name == self.op.down_bias and self.rank > 0:
            home.zero_()  # the shares are added up
        else:
            home.copy_(self.share(name, loaded))

    def share(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """This rank's part of the author's tensor ``name``."""
        op, (start, stop) = self.op, self.own
        if name == op.down_bias:
            return tensor
        if name == op.down:
            return tensor[:, start:stop] if op.turned else tensor[..., start:stop]
        dim = 2 if op.turned and name in op.up else 1
        if not op.gated or len(op.up) == 2:
            return tensor.narrow(dim, start, stop - start)
        if op.interleaved:
            return tensor.narrow(dim, 2 * start, 2 * (stop - start))
        return torch.cat([half.narrow(dim, start, stop - start) for half in tensor.chunk(2, dim)], dim)

    def _through(self, number: int, value: torch.Tensor) -> torch.Tensor:
        op = self.op
        parts = [self._product(name, number, value) for name in op.up]
        if op.up_bias:
            parts = [part + self._own(name)[number] for part, name in zip(parts, op.up_bias, strict=True)]
        found = self._product(op.down, number, between(op, torch.cat(parts, -1)))
        return found + self._own(op.down_bias)[number] if op.down_bias else found

    def _own(self, name: str) -> torch.Tensor:
        return self.get_parameter(self.homes[name])

    def _product(self, name: str, number: int, value: torch.Tensor) -> torch.Tensor:
        matrix = self._own(name)[number]
        return value @ matrix if self.op.turned else functional.linear(value, matrix)


def _numbered(op: Experts, name: str, loaded: torch.Tensor) -> tuple[range, str, torch.Tensor]:
    """The experts that ``loaded`` is of, the author's name, and ``[experts, …]``."""
    number, colon, own = name.rpartition(":")
    if not colon:
        return range(op.count), name, loaded
    return range(int(number), int(number) + 1), own, loaded[None]


def chosen(
    hidden_states: torch.Tensor,  # noqa: ARG001  vLLM's signature
    gating_output: torch.Tensor,
    topk: int,
    renormalize: bool,  # noqa: ARG001  vLLM's signature
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and numbers of the experts chosen, as `Fused` has put them in the place of logits."""
    weights, ids = gating_output[:, :topk], gating_output[:, topk:]
    return weights.contiguous(), ids.to(torch.int32).contiguous()
