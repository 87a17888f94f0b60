"""Ranks meet in collectives, and no rank is ever left waiting."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hfspeed.reference.ranks import Ranks, RanksError

pytestmark = pytest.mark.timeout(60)


@given(size=st.integers(1, 5), rounds=st.integers(0, 4))
@settings(max_examples=20, deadline=None)
def test_collectives_give_every_rank_the_same(size, rounds):
    def work(rank, group):
        assert (group.rank, group.size) == (rank, size)
        seen = []
        for turn in range(rounds):
            value = torch.tensor([float(rank + 1), float(turn)])
            seen.append((group.all_reduce(value), torch.cat(group.all_gather(value))))
            group.barrier()
        return seen

    results = Ranks(size).run(work)
    total = size * (size + 1) / 2
    for result in results:
        for turn, (summed, gathered) in enumerate(result):
            assert summed.tolist() == [total, size * float(turn)]
            assert gathered.tolist() == [x for rank in range(size) for x in (float(rank + 1), float(turn))]


def test_a_rank_that_raises_releases_the_others_and_its_error_surfaces():
    def work(rank, group):
        if rank == 2:
            raise KeyError("this one")
        return group.all_reduce(torch.ones(2))

    with pytest.raises(KeyError, match="this one"):
        Ranks(4).run(work)


def test_a_rank_that_returns_early_is_told():
    def work(rank, group):
        return None if rank == 1 else group.all_reduce(torch.ones(2))

    with pytest.raises(RanksError, match=r"rank 1 has returned, but rank 0 waits for it in all_reduce of \(2,\)"):
        Ranks(2).run(work)


@pytest.mark.parametrize("other", [lambda g: g.all_gather(torch.ones(2)), lambda g: g.all_reduce(torch.ones(3))])
def test_ranks_that_disagree_are_told(other):
    def work(rank, group):
        return group.all_reduce(torch.ones(2)) if rank == 0 else other(group)

    with pytest.raises(RanksError, match="disagree about what to exchange"):
        Ranks(2).run(work)


def test_grad_mode_reaches_the_ranks():
    with torch.no_grad():
        assert Ranks(2).run(lambda _rank, _group: torch.is_grad_enabled()) == [False, False]
    assert Ranks(2).run(lambda _rank, _group: torch.is_grad_enabled()) == [True, True]


def test_no_ranks_at_all():
    with pytest.raises(ValueError, match="at least one"):
        Ranks(0)
