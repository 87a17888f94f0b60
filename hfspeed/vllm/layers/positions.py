"""What the author computes from positions, once for every position that can occur."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from hfspeed.pattern.table import called
from hfspeed.plan import Positions
from hfspeed.vllm.site import Site


class PositionRows(nn.Module):
    """`Positions`: looks rows up in tables that the author's module has filled.

    A table in whose rows the second half repeats the first is kept by its first half. Tables are in the dtype that
    the module gives beside values in the served one; beside other values the author's own module is asked.

    Args:
        op: what was decided.
        module: the author's module, with its buffers.
        length: how many positions there can be.
    """

    def __init__(self, op: Positions, module: nn.Module, length: int) -> None:
        super().__init__()
        self.stands_for = (module,)  # in a tuple, so that it is no child
        names = list(inspect.signature(module.forward).parameters)
        self.given, self.word, self.alone = op.given, op.word, False
        self.at = {name: names.index(name) for name in (op.given, op.word, op.value) if name}
        self.repeats: dict[str, tuple[bool, ...]] = {}
        every, like = torch.arange(length)[None], torch.zeros(1, 1, 1)
        self.value, self.dtype = op.value, like.dtype
        with torch.no_grad(), _as_when_serving():
            for kind in op.kinds or ("",):
                made = called(module, op, every, like, kind)
                self.alone = isinstance(made, torch.Tensor)
                tables = (made,) if self.alone else made
                self.repeats[kind] = tuple(self._keep(kind, number, table[0]) for number, table in enumerate(tables))

    def __getattr__(self, name: str) -> Any:  # what else is read off it is the author's
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["stands_for"][0], name)

    def forward(self, *args: Any, **keywords: Any) -> Any:
        """``[1, tokens, size]`` for positions ``[1, tokens]``; one tensor or several, as the author's."""
        if self.value and self._argument(self.value, args, keywords).dtype != self.dtype:
            return self.stands_for[0](*args, **keywords)
        positions = self._argument(self.given, args, keywords)[0]
        kind = self._argument(self.word, args, keywords) if self.word else ""
        found = []
        for number, repeats in enumerate(self.repeats[kind]):
            rows = getattr(self, f"rows_{kind}_{number}")[positions][None]
            found.append(torch.cat((rows, rows), -1) if repeats else rows)
        return found[0] if self.alone else tuple(found)

    def _argument(self, name: str, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return keywords[name] if name in keywords else args[self.at[name]]

    def _keep(self, kind: str, number: int, table: torch.Tensor) -> bool:
        """Keep ``[positions, size]``, or half of it; whether it is half."""
        half = table.shape[-1] // 2
        repeats = table.shape[-1] == 2 * half and torch.equal(table[:, :half], table[:, half:])
        rows = (table[:, :half] if repeats else table).clone(memory_format=torch.contiguous_format)
        self.register_buffer(f"rows_{kind}_{number}", rows, persistent=False)
        return repeats


class AllRows(nn.Module):
    """`Positions` that are counted: always the whole table, for positions to look up.

    Beside values in another dtype than the served one the author's own module is asked.

    Args:
        op: what was decided.
        module: the author's module, with its buffers.
        length: how many positions there can be.
    """

    def __init__(self, op: Positions, module: nn.Module, length: int) -> None:
        super().__init__()
        self.stands_for = (module,)  # in a tuple, so that it is no child
        self.op, self.length, like = op, length, torch.zeros(1, 1, 1)
        self.at, self.dtype = list(inspect.signature(module.forward).parameters).index(op.value or op.given), like.dtype
        with torch.no_grad(), _as_when_serving():
            made = called(module, op, length, like)
        self.kind: type[Any] = type(made)
        for number, table in enumerate((made,) if isinstance(made, torch.Tensor) else made):
            self.register_buffer(f"rows_{number}", table.clone(), persistent=False)

    def __getattr__(self, name: str) -> Any:  # what else is read off it is the author's
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["stands_for"][0], name)

    def forward(self, *args: Any, **keywords: Any) -> Any:
        """Every row; one tensor or several, as the author's."""
        if self.op.value:
            like = keywords[self.op.value] if self.op.value in keywords else args[self.at]
            if like.dtype != self.dtype:
                return called(self.stands_for[0], self.op, self.length, like)
        found = list(self._buffers.values())
        return found[0] if issubclass(self.kind, torch.Tensor) else self.kind(found)

    def share(self, other: AllRows) -> None:
        """Keep no second copy of what another module of the model gives as well."""
        for name, table in other._buffers.items():
            mine = self._buffers.get(name)
            if mine is not None and table is not None and mine.shape == table.shape and torch.equal(mine, table):
                self._buffers[name] = table


@contextmanager
def _as_when_serving() -> Iterator[None]:
    """What names no dtype is made in float32, as in every step; only while models are built it is the served one."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(default)


def positions(op: Positions, site: Site) -> None:
    """Tables as long as the longest sequence that vLLM was told to take."""
    length = site.vllm_config.model_config.max_model_len
    if op.counted:
        made = AllRows(op, site.root.get_submodule(op.path), length)
        if other := next((one for one in site.root.modules() if isinstance(one, AllRows)), None):
            made.share(other)
        site.put(op.path, made)
        return
    site.put(op.path, PositionRows(op, site.root.get_submodule(op.path), length))
