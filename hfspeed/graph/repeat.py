"""Layers that are proven equal to one that has run are not run again: they give what that one gave.

Two members of a list of modules are equal if all that decides what a layer does is: classes, children, shapes of
parameters, values of buffers, every attribute that the first one's run read, and the arguments. Attributes that nothing
read (the layer's number, in a run without a cache) may differ. The second of a kind and the last of a list run all the
same, and their graphs must be the first one's, node by node; else nothing is taken from anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from hfspeed.graph.call import Call, Recording
from hfspeed.graph.frozen import frozen, plain
from hfspeed.graph.reads import attributes, foreign, hidden, reading, surroundings
from hfspeed.graph.same import same_graphs
from hfspeed.graph.shadow import Shadows
from hfspeed.graph.stateful import is_stateful
from hfspeed.graph.tensors import tensors
from hfspeed.plan.paths import outer

FEWEST = 4
"""Lists with fewer members are run as they are: first, second and last run in any case."""
KINDS = 12
"""Kinds of layers looked for in one list."""


_Name = tuple[str, str]


class UnlikeError(BaseException):
    """Layers that were taken for equal are not; the run must be repeated with all of them."""


@dataclass
class _Kind:
    """The first layer of a kind: what decided its run, and what came of it."""

    path: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any
    read: dict[_Name, Hashable]
    form: Hashable
    buffers: list[torch.Tensor | None]
    trusted: bool = False
    able: bool = True


@dataclass
class Repeats:
    """Which calls of a run can be taken from earlier ones.

    Args:
        recording: the run; ``recording.like`` is filled in.
        shadows: values of meta tensors.
        held: names of parameters and buffers, by ``id``.
    """

    recording: Recording
    shadows: Shadows
    held: Mapping[int, str]
    members: dict[str, str] = field(default_factory=dict)
    last: set[str] = field(default_factory=set)
    kinds: dict[str, list[_Kind]] = field(default_factory=dict)
    reads: set[tuple[int, str]] = field(default_factory=set)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Find the lists, and watch what their members read while the block runs."""
        watched: list[nn.Module] = []
        lists = [pair for pair in self.recording.model.named_modules() if isinstance(pair[1], nn.ModuleList)]
        for name, one in lists:
            if len(one) >= FEWEST and not self.members.keys() & outer(name) and _apart(one):
                self.members |= {f"{name}.{number}": name for number in range(len(one))}
                self.last.add(f"{name}.{len(one) - 1}")
                watched += (inner for layer in one for inner in layer.modules())
        with reading(watched) as self.reads:
            yield

    def run(
        self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], original: Callable[[], Any]
    ) -> Any:
        """What the module at ``path`` gives: taken from an equal one, or computed by ``original``.

        Raises:
            UnlikeError: a layer that was taken for equal is not, or is called once more.
        """
        own = self.members.get(path)
        if own is None:
            return original()
        if path in self.recording.like or (path in self.recording.calls and own in self.kinds):
            raise UnlikeError(path)
        kinds = self.kinds.get(own, [])
        with torch._C.DisableTorchFunction():  # what we ask of tensors is no part of what the author does
            found = next((kind for kind in kinds if self._equal(kind, module, args, kwargs)), None)
        if found is not None and found.able and found.trusted and path not in self.last:
            self.recording.like[path] = found.path
            return _again(found, args, kwargs)
        if found is not None:
            output = original()
            with torch._C.DisableTorchFunction():
                alike = found.able and same_graphs(self.recording, found.path, path)
            if found.trusted and not alike:
                raise UnlikeError(path)
            found.able, found.trusted = alike, alike
            return output
        return self._first(path, module, args, kwargs, original) if len(kinds) < KINDS else original()

    def _first(
        self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], original: Callable[[], Any]
    ) -> Any:
        """Run the first of a kind, and see whether its run may stand for others."""
        with torch._C.DisableTorchFunction():
            before, versions, reads = _all(module), _versions(module, args, kwargs), len(self.recording.reads)
        self.reads.clear()
        output = original()
        with torch._C.DisableTorchFunction():
            read, able = self._learned(path, module, (args, kwargs), output, before)
            able = able and versions == _versions(module, args, kwargs) and reads == len(self.recording.reads)
            buffers = [self.shadows.of(one) for one in module.buffers()]
            kind = _Kind(path, args, kwargs, output, read, _form(module), buffers, able=able)
        self.kinds.setdefault(self.members[path], []).append(kind)
        return output

    def _learned(
        self, path: str, module: nn.Module, given: tuple[Any, Any], output: Any, before: Mapping[_Name, Hashable]
    ) -> tuple[dict[_Name, Hashable], bool]:
        """The attributes that a run read, as they were, and whether the run left nothing behind."""
        args, kwargs = given
        calls = {p: c for p, c in self.recording.calls.items() if p == path or p.startswith(f"{path}.")}
        read = _read(module, before, self.reads, {p[len(path) + 1 :]: c for p, c in calls.items()})
        able = (
            before == _all(module)
            and all(_given(value, self.held) for value in (*args, *kwargs.values()))
            and _fresh(output, [*tensors((args, kwargs)), *module.parameters(), *module.buffers()])
            and all(self.shadows.of(one) is None for one in tensors(output))
            and not any(p in calls for p in self.recording.again)
            and all(_within(call, path) for call in calls.values())
        )
        return read, able

    def _equal(self, kind: _Kind, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return (
            kind.able
            and self._alike((kind.args, kind.kwargs), (args, kwargs))
            and _pattern((kind.args, kind.kwargs)) == _pattern((args, kwargs))
            and kind.form == _form(module)
            and all(_now(module, *name) == value for name, value in kind.read.items())
            and all(
                one is not None and other is not None and torch.equal(one, other)
                for one, other in zip(kind.buffers, (self.shadows.of(b) for b in module.buffers()), strict=True)
            )
        )

    def _alike(self, one: Any, other: Any) -> bool:
        """Whether two arguments cannot be told apart, but for what earlier layers made of weights."""
        if type(one) is not type(other):
            return False
        if isinstance(one, torch.Tensor):
            if one is other:
                return True
            unknown = self.shadows.of(one) is None and self.shadows.of(other) is None
            return unknown and id(other) not in self.held and _sizes(one) == _sizes(other)
        if isinstance(one, (tuple, list)):
            return len(one) == len(other) and all(map(self._alike, one, other))
        if isinstance(one, dict):
            return list(one) == list(other) and all(self._alike(one[name], other[name]) for name in one)
        return plain(one) and one == other


def _again(kind: _Kind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The output of the first of a kind, anew; where that gave back an argument, the own one."""
    handed = zip(tensors((kind.args, kind.kwargs)), tensors((args, kwargs)), strict=True)
    known = {id(one): other for one, other in handed}

    def anew(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in known:
                known[id(value)] = torch.empty_strided(
                    value.shape, value.stride(), dtype=value.dtype, device=value.device
                )
            return known[id(value)]
        return tuple(map(anew, value)) if isinstance(value, tuple) else value

    with torch._C.DisableTorchFunction():
        return anew(kind.output)


def _apart(layers: nn.ModuleList) -> bool:
    """Whether no module or parameter stands in two members, and nobody reads attributes unseen."""
    modules = [one for layer in layers for one in layer.modules()]
    tensors = [one for layer in layers for one in (*layer.parameters(), *layer.buffers())]
    once = len({*map(id, modules)}) == len(modules) and len({*map(id, tensors)}) == len(tensors)
    return once and not any(hidden(cls) for cls in {type(one) for one in modules} if not foreign(cls))  # type: ignore[arg-type]


def _form(module: nn.Module) -> Hashable:
    """Classes, children, and parameters and buffers by shape; what torch's own modules and hooks add to it."""
    return tuple(
        (
            path, type(one), one.training, bool(one._forward_hooks), bool(one._forward_pre_hooks),
            tuple((name, None if t is None else (t.shape, t.dtype)) for name, t in one._parameters.items()),
            tuple((name, None if t is None else (t.shape, t.dtype)) for name, t in one._buffers.items()),
            tuple((name, frozen(v)) for name, v in attributes(one)) if foreign(type(one)) else (),
        )
        for path, one in module.named_modules()
    )  # fmt: skip


def _all(module: nn.Module) -> dict[_Name, Hashable]:
    return {(path, name): frozen(v) for path, one in module.named_modules() for name, v in attributes(one)}


def _now(module: nn.Module, path: str, name: str) -> Hashable:
    inside = vars(module.get_submodule(path))
    return frozen(inside[name]) if name in inside else None


def _read(
    module: nn.Module, before: Mapping[_Name, Hashable], reads: set[tuple[int, str]], calls: dict[str, Call]
) -> dict[_Name, Hashable]:
    """The attributes that were read, as they were; all of a module that was not looked into."""
    unseen = [path for path, call in calls.items() if call.closed or _method(call)]
    paths = {id(one): path for path, one in module.named_modules()}
    seen = {(paths[owner], name) for owner, name in reads if owner in paths}
    found: dict[_Name, Hashable] = dict.fromkeys(seen)  # None: the instance has none, so its class's was read
    return found | {
        (path, name): value
        for (path, name), value in before.items()
        if (path, name) in seen or any(path == one or path.startswith(f"{one}.") or not one for one in unseen)
    }


def _method(call: Call) -> bool:
    """Whether a module has a method with a state, which on meta is not run."""
    names = [getattr(node.target, "__name__", "") for node in call.graph.nodes if is_stateful(node)]
    return any(hasattr(call.cls, name) for name in names)


def _within(call: Call, path: str) -> bool:
    """Whether a call reads no tensor but what it was given, made itself, or holds in the layer."""
    return not any(
        (node.op == "placeholder" and node.target == "constant")
        or (node.op == "get_attr" and not str(node.target).startswith(f"{path}."))
        for node in call.graph.nodes
    )


def _given(value: Any, held: Mapping[int, str]) -> bool:
    """Whether an argument is made of tensors and plain values, none of them a parameter."""
    if isinstance(value, torch.Tensor):
        return id(value) not in held
    return plain(value) or (isinstance(value, tuple) and all(_given(part, held) for part in value))


def _fresh(output: Any, given: list[torch.Tensor]) -> bool:
    """Whether a result is tensors that share no memory with what was there, unless they are just that."""
    if not (isinstance(output, torch.Tensor) or (type(output) is tuple and all(_plain_or_tensor(v) for v in output))):
        return False
    known, memory = {id(one) for one in given}, {one.untyped_storage()._cdata for one in given}
    mine = {id(one): one.untyped_storage()._cdata for one in tensors(output) if id(one) not in known}
    return not memory.intersection(mine.values()) and len({*mine.values()}) == len(mine)


def _plain_or_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or plain(value)


def _versions(module: nn.Module, args: Any, kwargs: Any) -> Hashable:
    """Changes with everything that is written to: tensors, and what the classes' files keep."""
    held = (*tensors((args, kwargs)), *module.parameters(), *module.buffers())
    return tuple(tensor._version for tensor in held), surroundings(module)


def _pattern(value: Any) -> list[int]:
    """Which tensors in ``value`` are one and the same."""
    order: dict[int, int] = {}
    return [order.setdefault(id(one), len(order)) for one in tensors(value)]


def _sizes(one: torch.Tensor) -> Hashable:
    return one.shape, one.stride(), one.dtype, one.device, one.storage_offset()
