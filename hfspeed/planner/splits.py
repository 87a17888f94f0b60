"""What goes over the ranks: pairs of projections, attention by heads, modules with states; and why others do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from hfspeed.axes import tensor
from hfspeed.axes.mixers import Mixes, Segments
from hfspeed.axes.tensor import Block
from hfspeed.graph.linear import shape_of
from hfspeed.graph.record import Call
from hfspeed.plan import Attention, Keep, Local, Norm, Op, Share
from hfspeed.plan.segments import units
from hfspeed.planner import mixers
from hfspeed.planner.leaves import Splits
from hfspeed.planner.work import Draft


@dataclass
class _Found:
    """What verdicts let split."""

    columns: dict[str, int] = field(default_factory=dict)
    rows: set[str] = field(default_factory=set)
    gathered: dict[str, int] = field(default_factory=dict)
    segments: dict[str, Segments] = field(default_factory=dict)
    attending: set[str] = field(default_factory=set)
    more: list[Op] = field(default_factory=list)


def split(work: Draft) -> Splits:
    """Gather what the verdicts let split; attention through which no share passes is whole on every rank."""
    found, before = _Found(), list(work.ops)
    _mixers(work, found)
    _blocks(work, found)
    attention = {op.path for op in work.ops if isinstance(op, Attention)}
    work.tensor = work.verdicts.tensor and (attention <= found.attending or bool(found.columns))
    if not work.tensor:
        found, work.shaped, work.mixed, work.ops = _Found(), {}, {}, before
    work.ops = [_shared(op, found.attending, found.gathered) for op in work.ops] + found.more
    return Splits(found.columns, frozenset(found.rows), found.gathered, found.segments)


def _mixers(work: Draft, found: _Found) -> None:
    """Modules with states."""
    inside = {call.path for call in work.calls()}
    for path, mixer in mixers.mixers(work.study).items():
        verdict, made = work.verdicts.of(mixer.call), mixer.split
        if path not in inside or work.inside_written(path) or work.apart(work.study.recording.calls[path]):
            continue
        if made is None or not verdict.split:
            told = verdict.refusal.at(path) if made and verdict.refusal else mixers.refused(mixer, mixer.why)
            work.refusals.append(told)
            continue
        try:
            ops, more = mixers.with_states(work.ops, made), list(mixers.ops(work, mixer, verdict))
        except Mixes as why:
            work.refusals.append(mixers.refused(mixer, str(why)))
            continue
        work.ops, work.mixed[path] = ops, made
        found.more += more
        found.columns |= {column: units(cut) for column, cut in made.columns.items()}
        found.rows |= set(made.rows)
        found.gathered |= made.gathered
        found.segments |= made.columns


def _blocks(work: Draft, found: _Found) -> None:
    """Pairs of projections, with or without attention between them."""
    known = mixers.mixers(work.study)
    for call in work.calls():
        if call.path in known or any(call.path.startswith(f"{path}.") for path in work.mixed):
            continue
        view = tensor.across(call, work.study.recording)
        block = tensor.block(view)
        if block is None or work.inside_written(call.path) or work.apart(call):
            continue
        block = replace(block, own={name: ways for name, ways in block.own.items() if not _saved(work, name)})
        work.blocks[call.path], work.views[call.path] = block, view
        verdict = work.verdicts.of(view)
        if not verdict.split:
            work.refusals += [verdict.refusal.at(call.path)] if verdict.refusal else []
            continue
        found.columns |= block.columns
        found.rows |= set(block.rows)
        found.gathered |= block.gathered
        found.attending |= block.attends
        found.more += [_local(call, name) for name in verdict.local]
        found.more += _own(work, call, block, verdict.own)
        if verdict.widths:
            work.shaped |= {owner: _divided(work, block) for owner in _owners(view)}


def _saved(work: Draft, path: str) -> bool:
    """Whether a tensor is a buffer that comes from the checkpoint: nobody loads a part of one."""
    owner, _, name = path.rpartition(".")
    module = work.study.model.get_submodule(owner)
    return name in module._buffers and name not in module._non_persistent_buffers_set


def _own(work: Draft, call: Call, block: Block, chosen: Sequence[tuple[str, int]]) -> Iterator[Op]:
    """Each rank's part of the tensors that meet split values; and children without weights that are fed all of them."""
    for name, dim in chosen:
        path = f"{call.path}.{name}" if call.path else name
        owner, _, last = path.rpartition(".")
        module, units_of = work.study.model.get_submodule(owner), block.own[path][dim]
        yield Share(path, dim, ((int(getattr(module, last).shape[dim]), units_of),), last in module._parameters)
    yield from (Keep(path, block.gathered[path]) for path in sorted(block.plain))


def _divided(work: Draft, block: Block) -> set[int]:
    """Numbers that ranks divide in a block: heads, and what all columns give."""
    found: set[int] = set()
    for path in block.columns:
        if shape := shape_of(work.study.model.get_submodule(path)):
            found.add(shape.outputs)
    for op in work.ops:
        if isinstance(op, Attention) and op.path in block.attends:
            found |= {op.heads, op.heads * op.value_size}
    return found


def _owners(view: Call) -> list[str]:
    """The paths of a module and of the children whose graphs are part of its own."""
    return list(dict.fromkeys([view.path, *(node.meta.get("owner", view.path) for node in view.graph.nodes)]))


def _local(call: Call, name: str) -> Local:
    """The attribute ``name`` of the called module, or of a child in it."""
    child, _, attribute = name.rpartition(".")
    whole = getattr(call.module.get_submodule(child), attribute)
    return Local(".".join(part for part in (call.path, child) if part), attribute, int(whole))


def _shared(op: Op, attending: set[str], gathered: dict[str, int]) -> Op:
    if isinstance(op, Attention):
        return replace(op, split=op.path in attending)
    return replace(op, units=gathered.get(op.path, 0)) if isinstance(op, Norm) else op
