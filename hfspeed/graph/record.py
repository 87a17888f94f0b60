"""One run of a model gives, for every module called, its arguments, its result and its graph.

Children are leaves, as in a symbolic trace; but nothing is symbolic here: the author's Python runs as it
is, on meta tensors or on real ones, and what it did is written down.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import is_dataclass
from functools import partial
from types import CodeType, FrameType
from typing import Any

import torch
from torch import fx, nn
from torch.overrides import TorchFunctionMode

from hfspeed.graph.active import patched, recorder
from hfspeed.graph.call import Call, Recording, closed, written
from hfspeed.graph.hollow import on_meta
from hfspeed.graph.positions import forward_code, span_in, stack_of
from hfspeed.graph.repeat import Repeats, UnlikeError
from hfspeed.graph.shadow import READS, SIZES, Shadows
from hfspeed.graph.stateful import watched
from hfspeed.graph.tensors import copied, held, items, tensors

__all__ = ["Call", "Recording", "record", "recorder", "written"]


class _Open:
    """A module call in progress: its graph and the tensors known in it."""

    def __init__(self, call: Call, boundary: FrameType, code: CodeType | None) -> None:
        self.call = call
        self.boundary = boundary
        self.code = code
        self.known: dict[int, tuple[fx.Node, torch.Tensor, int]] = {}


class _Recorder(TorchFunctionMode):
    """Writes torch functions into the graph of the innermost open module call."""

    def __init__(
        self,
        model: nn.Module,
        keep_values: bool,
        shadows: Shadows,
        shut: Collection[type[nn.Module]] = (),
        share: bool = False,
    ) -> None:
        super().__init__()
        self.shadows, self.shut = shadows, shut
        self.stopped: list[Call] = []
        self.recording = Recording(model)
        self.keep_values = keep_values
        self.paths = {id(module): name for name, module in model.named_modules()}
        self.held = {id(t): name for name, t in held(model)}
        self.stack: list[_Open] = []
        self.repeats = Repeats(self.recording, shadows, self.held) if share else None

    # -- functions ---------------------------------------------------------------------------------

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if not self.stack:
            return func(*args, **kwargs)
        if getattr(func, "__name__", "") == "__get__":  # an attribute read: only views matter
            result = self.shadows.run(func, args, kwargs)
            if not isinstance(result, torch.Tensor):
                self._measured(func, args)
                return result
        open_ = self.stack[-1]
        wired = self._wire(open_, args), self._wire(open_, kwargs)
        result = self.shadows.run(func, args, kwargs)
        if getattr(func, "__name__", "") in READS:
            self.recording.read(open_.call.path, result, stack_of(sys._getframe(1), open_.boundary)[:1])
        self._write(open_, func, wired, args, result, sys._getframe(1))
        return result

    def _measured(self, func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Write down that somebody asks how large another module's parameter is, which kernels may lay out anew."""
        open_, asked = self.stack[-1], getattr(getattr(func, "__self__", None), "__name__", "")
        owner = self.held.get(id(args[0]), "").rpartition(".")[0] if asked in SIZES else open_.call.path
        if owner and owner != open_.call.path:
            node = self._node(open_, args[0])
            node.meta.setdefault("stack", stack_of(sys._getframe(2), open_.boundary))

    def leaf(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run ``func`` unseen and write it down as one node."""
        if not self.stack:
            return func(*args, **kwargs)
        open_ = self.stack[-1]
        wired = self._wire(open_, args), self._wire(open_, kwargs)
        outer, self.stack = self.stack, []  # what happens inside is nobody's; other modes still see it
        try:
            result = func(*args, **kwargs)
        finally:
            self.stack = outer
        self._write(open_, func, wired, args, result, sys._getframe(2))
        return result

    def _write(
        self,
        open_: _Open,
        func: Callable[..., Any],
        wired: tuple[Any, Any],
        args: tuple[Any, ...],
        result: Any,
        frame: FrameType,
    ) -> None:
        stores = getattr(func, "__name__", "") == "__setitem__"
        if not stores and not any(True for _ in tensors(result)):
            return
        node = open_.call.graph.call_function(func, *wired)
        node.meta["span"] = span_in(frame, open_.code, open_.boundary)
        node.meta["stack"] = stack_of(frame, open_.boundary)
        known = open_.known.get(id(result))
        if known is not None and known[2] == result._version:
            node.meta["value"] = result  # a cast to what it already is: still the same value as before
            node.meta["shadow"] = self.shadows.of(result)
        else:
            self._learn(open_, node, args[0] if stores else result)

    # -- modules -----------------------------------------------------------------------------------

    def call(
        self, original: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run one module's call as a node of the caller and as a graph of its own."""
        path = self.paths.get(id(module))
        if path is None:
            return original(module, *args, **kwargs)
        frame = sys._getframe(2)
        parent = self.stack[-1] if self.stack else None
        wired = (self._wire(parent, args), self._wire(parent, kwargs)) if parent else ((), {})
        run = partial(self._enter, original, path, module, args, kwargs, frame)
        output = self.repeats.run(path, module, args, kwargs, run) if self.repeats else run()
        if parent:
            node = parent.call.graph.call_module(path or "self", *wired)
            node.meta["span"] = span_in(frame, parent.code, parent.boundary)
            node.meta["stack"] = stack_of(frame, parent.boundary)
            node.meta["module"] = module
            self._learn(parent, node, output)
        return output

    def _enter(
        self,
        original: Callable[..., Any],
        path: str,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        frame: FrameType,
    ) -> Any:
        """Run one module's call with a graph of its own."""
        call = self._open(path, module, args, kwargs, frame)
        try:
            if type(module) in self.shut:
                self._closed(original, call, args, kwargs)
            else:
                call.output = original(module, *args, **kwargs)
        except BaseException:
            self.stopped.append(call)
            raise
        finally:
            inner = self.stack.pop()
        call.graph.output(self._wire(inner, call.output))
        return call.output

    def _closed(
        self, original: Callable[..., Any], call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Run a module that nobody looks into; on meta, find out what it would return."""
        inner = self.stack[-1]
        node = call.graph.call_function(closed, self._wire(inner, args), self._wire(inner, kwargs))
        stack, self.stack = self.stack, []
        paths, self.paths = self.paths, {}
        try:
            hollow = any(t.is_meta for t in tensors((args, kwargs)))
            call.output = on_meta(call.module, args, kwargs) if hollow else original(call.module, *args, **kwargs)
        finally:
            self.stack, self.paths = stack, paths
        self._learn(inner, node, call.output)

    def _open(
        self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType
    ) -> Call:
        with torch._C.DisableTorchFunction():  # our own copies are no part of what the author does
            kept = (copied(args), copied(kwargs)) if self.keep_values else (args, kwargs)
        graph = fx.Graph()
        call = Call(path, module, kept[0], kept[1], graph)
        if path in self.recording.calls:
            self.recording.again.setdefault(path, []).append(call)
        else:
            self.recording.calls[path] = call
        open_ = _Open(call, frame, forward_code(type(module)))  # type: ignore[arg-type]
        for name, value in [*enumerate(args), *kwargs.items()]:
            for number, tensor in enumerate(tensors(value)):
                if id(tensor) not in open_.known:
                    node = graph.placeholder(f"arg_{name}" + (f"_{number}" if number else ""))
                    node.meta |= {"argument": name, "number": number}
                    self._learn(open_, node, tensor)
        self.stack.append(open_)
        return call

    # -- tensors -----------------------------------------------------------------------------------

    def _wire(self, open_: _Open | None, value: Any) -> Any:
        """``value`` with every tensor replaced by the node that made it."""
        if open_ is None:
            return ()
        if isinstance(value, torch.Tensor):
            return self._node(open_, value)
        if isinstance(value, (tuple, list)):
            return tuple(self._wire(open_, item) for item in value)
        if isinstance(value, Mapping) or (is_dataclass(value) and not isinstance(value, type)):
            return {str(key): self._wire(open_, item) for key, item in items(value)}
        if isinstance(value, slice):
            parts = (value.start, value.stop, value.step)
            return slice(*(self._wire(open_, part) for part in parts))
        return value

    def _node(self, open_: _Open, tensor: torch.Tensor) -> fx.Node:
        known = open_.known.get(id(tensor))
        if known is None:
            name = self.held.get(id(tensor))
            graph = open_.call.graph
            if name is not None:
                node = graph.create_node("get_attr", name)
            else:
                node = graph.create_node("placeholder", "constant")
            self._learn(open_, node, tensor)
            return node
        node, _, version = known
        if tensor._version != version:
            node = open_.call.graph.call_function(written, (node,))
            self._learn(open_, node, tensor)
        return node

    def _learn(self, open_: _Open, node: fx.Node, value: Any) -> None:
        node.meta.setdefault("span", None)
        node.meta["value"] = value
        if isinstance(value, torch.Tensor):
            node.meta["shadow"] = self.shadows.of(value)
            open_.known[id(value)] = (node, value, value._version)
            return
        for key, item in items(value):
            if any(True for _ in tensors(item)):
                part = open_.call.graph.call_function(operator.getitem, (node, key))
                part.meta["span"] = node.meta["span"]
                part.meta["stack"] = node.meta.get("stack", ())
                self._learn(open_, part, item)


def record(
    model: nn.Module,
    kwargs: dict[str, Any],
    *,
    keep_values: bool = False,
    values: Mapping[torch.Tensor, torch.Tensor] | None = None,
    shut: Collection[type[nn.Module]] = (),
    share: bool = False,
    guess: bool | None = None,
) -> Recording:
    """Run ``model(**kwargs)`` once and write down every module's call.

    Args:
        model: in eval mode, on meta or with values.
        kwargs: keyword arguments of its forward.
        keep_values: copy arguments, so that modules can be run again alone.
        values: the values of meta tensors in ``kwargs``, for forwards that read them.
        shut: classes that are not looked into.
        share: layers that are proven equal to an earlier one are not run; see `hfspeed.graph.repeat`.
        guess: the answer to questions about tensors on meta without values; by default torch raises.

    Raises:
        Whatever the author's forward raises; its ``stopped`` has the calls that were open then, innermost first.
    """
    active = _Recorder(model, keep_values, Shadows(values or {}, guess), shut, share)
    shared = active.repeats.watch() if active.repeats else nullcontext()
    try:
        with torch.no_grad(), patched(active), shared, watched(model, active.leaf), active:
            active.recording.output = model(**kwargs)
    except UnlikeError:
        return record(model, kwargs, keep_values=keep_values, values=values, shut=shut, guess=guess)
    except BaseException as error:
        error.stopped = active.stopped  # type: ignore[attr-defined]
        raise
    return active.recording
