"""Checks that a row is no longer than something: which are taken for one, and how many tokens they allow."""

from __future__ import annotations

import pytest
from torch import nn

from hfspeed.pattern.row_checks import row_checks
from hfspeed.source import recover

MOST = 7


class Sizes(nn.Module):
    most, flag = 12, True

    def forward(self, x):
        raise NotImplementedError


class Asserts(Sizes):
    def forward(self, x):
        _, T = x.shape
        assert self.most >= T, "too long"
        return x


class Raises(Sizes):
    def forward(self, x):
        count = x.size(1)
        if self.most * 2 <= count:
            raise ValueError("too long")
        return x


class Chosen(Sizes):
    def forward(self, x):
        _, tokens, _ = x.size()
        limit = self.most * 4 if self.flag else MOST
        if tokens > limit:
            raise ValueError
        return x


class Global(Sizes):
    def forward(self, x):
        assert x.shape[1] < MOST
        return x


class Batch(Sizes):
    def forward(self, x):
        B, _ = x.shape
        assert self.most >= B
        return x


class Branch(Sizes):
    def forward(self, x):
        if x.shape[1] > self.most:
            x = x * 2
        return x


class Called(Sizes):
    def forward(self, x):
        assert x.shape[1] <= max(self.most, 3)
        return x


@pytest.mark.parametrize(
    ("cls", "most"),
    [(Asserts, [12]), (Raises, [23]), (Chosen, [48]), (Global, [6]), (Batch, []), (Branch, []), (Called, [])],
)
def test_what_is_a_check(cls: type[Sizes], most: list[int]) -> None:
    found = list(row_checks(recover(cls, "forward"), cls()))
    assert [limit for _, limit in found] == most
    assert all(change.kind == "erase" for change, _ in found)
