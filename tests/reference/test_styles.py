"""Every style, on ranks, gives what the unsplit module gives, and the same gradients; wrong plans are seen."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hfspeed.plan.styles import generic, style_of
from hfspeed.reference.ranks import Group, Ranks
from hfspeed.reference.styles import STYLES, Placement, StyleError, split

WIDE = 16


class Pair(nn.Module):
    """Two linears with biases, and a norm of single elements in between."""

    def __init__(self, packed: bool = False) -> None:
        super().__init__()
        self.up = nn.Linear(8, 2 * WIDE if packed else WIDE, bias=not packed)
        self.scale = nn.LayerNorm(4)
        self.down = nn.Linear(WIDE, 8)
        self.packed = packed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.up(x)
        if self.packed:
            gate, y = y.chunk(2, -1)
            y = gate.sigmoid() * y
        y = self.scale(y.unflatten(-1, (-1, 4))).flatten(-2)
        return self.down(y)


class Latent(nn.Module):
    """A linear of which some outputs go past the next to all heads."""

    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Linear(8, 6)
        self.high = nn.Linear(4, WIDE)
        self.down = nn.Linear(WIDE, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        near, far = self.low(x).split([4, 2], -1)
        heads = self.high(near).unflatten(-1, (-1, 2))
        return self.down((heads * far[..., None, :]).flatten(-2))


class Experts(nn.Module):
    """Four experts that are called with tokens, numbers and weights."""

    def __init__(self) -> None:
        super().__init__()
        self.num_experts = 4
        self.up = nn.Parameter(torch.empty(4, 2 * WIDE, 8))
        self.down = nn.Parameter(torch.empty(4, 8, WIDE))

    def forward(self, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        for number in range(self.num_experts):
            token, place = torch.where(chosen == number)
            gate, y = nn.functional.linear(x[token], self.up[number]).chunk(2, -1)
            y = nn.functional.linear(gate.sigmoid() * y, self.down[number]) * weights[token, place, None]
            out = out.index_add(0, token, y)
        return out


class Router(nn.Module):
    """Chooses two experts for each token."""

    num_experts = 4

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(4, 8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        logits = x @ self.weight.T
        weights, chosen = logits.softmax(-1).topk(2)
        return logits, weights, chosen


class Mixture(nn.Module):
    """Router and experts."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.experts = Router(), Experts()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, x.shape[-1])
        _, weights, chosen = self.router(flat)
        return self.experts(flat, chosen, weights).view_as(x)


class Tokens(nn.Module):
    """A table and a linear; the input says which rows."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.down = nn.Embedding(12, WIDE), nn.Linear(WIDE, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.table((x.abs().sum(-1) * 7).long() % 12))


class Config:
    """What one style reads."""

    qk_rope_head_dim = 2

    def get_text_config(self) -> Config:
        return self


CUT = {"experts.up": "packed_colwise", "experts.down": "rowwise", "experts": "moe_tp_experts"}
SPREAD = {"experts.up": "grouped_gemm", "experts.down": "grouped_gemm"}
RIGHT = {
    "column and row": (Pair, {"up": "colwise", "scale": "replicated_with_grad_allreduce", "down": "rowwise"}),
    "gathered": (Pair, {"up": "colwise_gather_output", "down": "rowwise_split_input"}),
    "only gathered": (Pair, {"up": "colwise_gather_output"}),
    "only split": (Pair, {"down": "rowwise_rep"}),
    "packed": (
        lambda: Pair(packed=True),
        {"up": "packed_colwise", "scale": "replicated_with_grad_allreduce", "down": "rowwise"},
    ),
    "latent": (Latent, {"low": "mla_kv_a_proj", "high": "colwise", "down": "rowwise"}),
    "experts cut": (Mixture, CUT),
    "experts spread": (Mixture, {**SPREAD, "experts": "ep_dispatch_experts"}),
    "experts masked": (Mixture, {**SPREAD, "experts": "moe_tp_experts", "router": "ep_router"}),
    "a table by rows": (Tokens, {"table": "embedding_rowwise"}),
    "a table by columns": (Tokens, {"table": "colwise", "down": "rowwise"}),
    "norm of a whole row": (Tokens, {"table": "colwise_gather_output"}),
}
WRONG = {
    "nobody sums": (Pair, {"up": "colwise", "down": "colwise_gather_output"}),
    "nobody splits": (Pair, {"down": "rowwise"}),
    "a norm's gradient": (Pair, {"up": "colwise", "down": "rowwise"}),
    "packed as plain": (lambda: Pair(packed=True), {"up": "colwise", "down": "rowwise"}),
    "plain as packed": (Pair, {"up": "packed_colwise", "scale": "replicated_with_grad_allreduce", "down": "rowwise"}),
    "summed twice": (Pair, {"down": "all_reduce"}),
    "what goes past": (Latent, {"high": "colwise", "down": "rowwise"}),
    "experts as plain": (Mixture, CUT | {"experts.up": "colwise"}),
    "nobody takes the pieces": (Mixture, SPREAD),
    "experts counted twice": (Mixture, {**SPREAD, "experts": "moe_tp_experts"}),
    "ids gathered": (Tokens, {"table": "rowwise"}),
    "divided for nothing": (Pair, {"scale": "moe_identity_expert"}),
}


def model_of(made) -> nn.Module:
    torch.manual_seed(3)
    model = made().double()
    for one in model.parameters():
        nn.init.normal_(one, std=0.5)
    model.config = Config()
    return model


def ran(model: nn.Module, plan: dict[str, str], ranks: int):
    x = torch.randn(2, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def work(_: int, group: Group):
        rank = split(model, plan, group, train=True)
        given = x.clone().requires_grad_()
        y = rank.root(given)
        (y * torch.linspace(1, 2, y.numel(), dtype=y.dtype).view_as(y)).sum().backward()
        grads = {"input": given.grad}
        for name, one in rank.root.named_parameters():
            grad = torch.zeros_like(one) if one.grad is None else one.grad
            grad = group.all_reduce(grad) if name in rank.late else grad
            at = rank.cut.get(name)
            grads[name] = at.whole(group.all_to_all([grad] * group.size)) if at else grad
        return y.detach(), grads

    return Ranks(ranks).run(work)


def same(found, wanted) -> bool:
    y, grads = wanted
    return all(
        got.shape == y.shape
        and torch.allclose(got, y, atol=1e-10)
        and all(g is None or torch.allclose(theirs[n], g, atol=1e-10) for n, g in grads.items())
        for got, theirs in found
    )


@pytest.mark.parametrize("what", RIGHT)
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_right_plan_changes_nothing(what: str, ranks: int) -> None:
    made, plan = RIGHT[what]
    model = model_of(made)
    before = {name: one.clone() for name, one in model.named_parameters()}
    assert same(ran(model, plan, ranks), ran(model, {}, 1)[0])
    assert all(torch.equal(one, before[name]) for name, one in model.named_parameters())


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_plan_is_seen(what: str) -> None:
    made, plan = WRONG[what]
    model = model_of(made)
    try:
        found = ran(model, plan, 2)
    except (RuntimeError, StyleError, IndexError, ValueError):
        return
    assert not same(found, ran(model, {}, 1)[0])


def test_each_rank_holds_its_share() -> None:
    model = model_of(Pair)
    plan = {"up": "colwise", "down": "rowwise"}
    held = Ranks(2).run(lambda _, group: [tuple(p.shape) for p in split(model, plan, group).root.parameters()])
    assert held == [[(8, 8), (8,), (4,), (4,), (8, 8), (8,)]] * 2


def test_shares_that_do_not_divide_are_uneven_and_gathering_them_is_refused() -> None:
    at = Placement(0)
    assert [len(at.local(torch.arange(10), rank, 4)) for rank in range(4)] == [3, 3, 3, 1]
    with pytest.raises(StyleError, match="`up` gives 16 values, which do not divide by 3 ranks"):
        Ranks(3).run(lambda _, group: split(model_of(Pair), {"up": "colwise_gather_output"}, group))


def test_a_row_reads_shares_that_are_all_as_large() -> None:
    with pytest.raises(StyleError, match="`down` reads 16 values, which do not divide by 3 ranks"):
        Ranks(3).run(lambda _, group: split(model_of(Pair), {"up": "colwise", "down": "rowwise"}, group))
    model, plan = model_of(Pair), {"down": "rowwise_split_input"}
    assert same(ran(model, plan, 3), ran(model, {}, 1)[0])


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_pieces_make_the_whole_again(blocks: int) -> None:
    whole, at = torch.arange(24).view(12, 2), Placement(0, blocks)
    assert torch.equal(at.whole([at.local(whole, rank, 2) for rank in range(2)]), whole)


def test_unknown_styles_and_odd_counts_of_experts_are_refused() -> None:
    with pytest.raises(StyleError, match="'sideways' is no style"):
        Ranks(1).run(lambda _, group: split(model_of(Pair), {"up": "sideways"}, group))
    with pytest.raises(StyleError, match="4 experts do not divide by 3 ranks"):
        Ranks(3).run(lambda _, group: split(model_of(Mixture), {**SPREAD, "experts": "ep_dispatch_experts"}, group))


def test_the_styles_are_those_of_transformers() -> None:
    from transformers.integrations.tensor_parallel import ALL_PARALLEL_STYLES

    assert set(ALL_PARALLEL_STYLES.keys()) - set(STYLES) == {"sequence_parallel", "megamoe_router", "megamoe_experts"}
    assert set(STYLES) <= set(ALL_PARALLEL_STYLES.keys())


def test_names_are_matched_as_transformers_does() -> None:
    from transformers.integrations.tensor_parallel import replace_layer_number_by_wildcard

    for name in ("layers.0.mlp.w1", "layers.12", "a.0.1.b", "experts.3.up.weight", "h1.2x.3"):
        assert generic(name) == replace_layer_number_by_wildcard(name)
    plan = {"layers.*.up": "colwise", "layers.*.up.bias": "rowwise"}
    assert style_of("layers.3.up.weight", plan, parameter=True) == "colwise"
    assert style_of("layers.3.up.bias", plan, parameter=True) == "rowwise"
    assert style_of("layers.3.up.inner", plan, parameter=False) is None
