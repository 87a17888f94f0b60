"""Stretches of dataflow that ranks could share, and the ways in which transformers' styles can say so.

A stretch begins at linears that are cut by their outputs and ends at linears that are cut by their inputs. Which way is
right for it is found out by running each on simulated ranks, not here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from torch import fx, nn

from hfspeed.axes.tensor import across
from hfspeed.graph.flow import between, origins
from hfspeed.graph.linear import shape_of
from hfspeed.graph.nodes import is_linear, linears, module_of
from hfspeed.graph.record import Call, Recording
from hfspeed.graph.written import completed
from hfspeed.plan import Experts
from hfspeed.plan.styles import generic

_MOST_PAST = 3


@dataclass(frozen=True)
class Stretch:
    """Modules by generic name.

    Attributes:
        columns: linears that feed nothing but the rows.
        rows: linears that read nothing but the columns and what goes past them.
        inner: other modules with parameters in between.
        past: linears that also feed something else, or a linear before this stretch.
        length: how much computation lies in between; the longest is tried first.
    """

    columns: tuple[str, ...]
    rows: tuple[str, ...]
    inner: tuple[str, ...]
    past: tuple[str, ...]
    length: int

    @property
    def names(self) -> frozenset[str]:
        """The linears that an entry would be for."""
        return frozenset((*self.columns, *self.rows))


def stretches(recording: Recording, base: str) -> list[Stretch]:
    """All stretches below the base model, the longest first; the same one of several layers is one."""
    found: list[Stretch] = []
    for call in recording.calls.values():
        if not call.path.startswith(f"{base}." if base else ""):
            continue
        for one in _stretches(completed(across(call, recording))):
            found = _joined(found, one)
    return sorted(found, key=lambda one: -one.length)


def _stretches(call: Call) -> Iterator[Stretch]:
    sources = {row: {one for given in row.all_input_nodes for one in origins(given)} for row in linears(call.graph)}
    ends = {one: between(one, is_linear)[1] for feeding in sources.values() for one in feeding}
    done: set[fx.Node] = set()
    for row, feeding in sources.items():
        if row in done:
            continue
        rows, columns = {row}, {one for one in feeding if ends[one] <= {row}}
        # what feeds this row and others alike is a column if those rows read nothing else
        for one in feeding - columns:
            others = {end for end in ends[one] if end in sources}
            if others == ends[one] and all(sources[end] == feeding for end in others):
                rows |= others
                columns.add(one)
        done |= rows
        if columns:
            yield _stretch(call, rows, columns, set().union(*(sources[one] for one in rows)) - columns)


def _stretch(call: Call, rows: set[fx.Node], columns: set[fx.Node], past: set[fx.Node]) -> Stretch:
    carriers = {node for column in columns for node in between(column, is_linear)[0]}
    inner = [n for n in call.graph.nodes if n in carriers and _weighted(n)]
    columns_, rows_, inner_, past_ = (
        _names([n for n in call.graph.nodes if n in chosen]) for chosen in (columns, rows, set(inner), past)
    )
    return Stretch(columns_, rows_, inner_, past_, len(carriers))


def _weighted(node: fx.Node) -> bool:
    module = module_of(node)
    return module is not None and any(True for _ in module.parameters())


def _names(nodes: list[fx.Node]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(generic(str(node.target)) for node in nodes))


def _joined(found: list[Stretch], one: Stretch) -> list[Stretch]:
    """``found`` with one more; what other layers say of the same names is put together, unless it is the contrary."""
    for other in found:
        if other.names == one.names or (other.names & one.names and not _contrary(other, one)):
            joined = Stretch(
                _both(other.columns, one.columns), _both(other.rows, one.rows), _both(other.inner, one.inner),
                _both(other.past, one.past), max(other.length, one.length),
            )  # fmt: skip
            return [joined if entry is other else entry for entry in found]
    return [*found, one]


def _both(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))


def _contrary(one: Stretch, other: Stretch) -> bool:
    return bool(set(one.columns) & set(other.rows) or set(one.rows) & set(other.columns))


def ways(stretch: Stretch, recording: Recording) -> Iterator[dict[str, str]]:
    """Entries for a stretch, the best first: computed in shares, or at least held in shares."""
    alike = dict.fromkeys(stretch.inner, "replicated_with_grad_allreduce")
    rows = dict.fromkeys(stretch.rows, "rowwise")
    for style in ("colwise", "packed_colwise"):
        entries = {**dict.fromkeys(stretch.columns, style), **alike, **rows}
        for size in range(min(len(stretch.past), _MOST_PAST) + 1):
            for chosen in combinations(stretch.past, size):
                yield {**dict.fromkeys(chosen, "mla_kv_a_proj"), **entries}
    kinds = _packed(stretch, recording)
    if 0 < len(kinds) < len(stretch.columns):
        mixed = {name: "packed_colwise" if name in kinds else "colwise" for name in stretch.columns}
        yield {**mixed, **alike, **rows}
    whole = dict.fromkeys(stretch.rows, "rowwise_split_input")
    gathered = dict.fromkeys(stretch.columns, "colwise_gather_output")
    yield {**gathered, **whole}
    yield whole
    yield gathered
    for name in stretch.columns if len(stretch.columns) > 1 else ():
        yield {name: "colwise_gather_output"}


def _packed(stretch: Stretch, recording: Recording) -> list[str]:
    """Columns twice as wide as the others of the stretch: two values in one."""
    widths: dict[str, int] = {}
    for path, module in recording.model.named_modules():
        if generic(path) in stretch.columns and (shape := shape_of(module)):
            widths[generic(path)] = shape.outputs
    least = min(widths.values(), default=0)
    return [name for name, wide in widths.items() if wide == 2 * least]


def expert_ways(op: Experts, inside: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """Entries that cut every expert by its inner width.

    Args:
        op: what the module of experts computes.
        inside: modules without weights in it, by generic name: what an expert may be that computes nothing.
    """
    at = generic(op.path)
    if op.apart:
        yield {
            **{f"{at}.*.{name}": "colwise" for name in _modules(op.up)},
            **{f"{at}.*.{name}": "rowwise" for name in _modules((op.down,))},
        }
        return
    if op.down_bias is not None:
        return  # every rank would add it
    packed = len(op.up) == 1 and op.gated and not op.interleaved
    by_rows = "rowwise" if op.turned else "colwise"
    entries = {f"{at}.{name}": f"packed_{by_rows}" if packed else by_rows for name in op.up}
    entries |= {f"{at}.{name}": "packed_rowwise" if packed else "rowwise" for name in op.up_bias}
    entries[f"{at}.{op.down}"] = "colwise" if op.turned else "rowwise"
    yield {**entries, at: "moe_tp_experts"}
    if inside:
        yield {**entries, **dict.fromkeys(inside, "moe_identity_expert"), at: "moe_tp_experts"}


def _modules(parameters: tuple[str, ...]) -> list[str]:
    return [name.removesuffix(".weight") for name in parameters]


def spread_ways(op: Experts, routers: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """Entries that spread whole experts: tokens go where their experts are, or every rank has all tokens."""
    if op.apart:
        return  # a list of modules has no dimension that counts experts
    at = generic(op.path)
    names = (*op.up, *op.up_bias, op.down, *([op.down_bias] if op.down_bias else ()))
    entries = {f"{at}.{name}": "grouped_gemm" for name in names}
    yield {**entries, at: "ep_dispatch_experts"}
    for router in routers:
        yield {router: "ep_router", **entries, at: "moe_tp_experts"}


def shape_ways(module: nn.Module, path: str, inside: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """As `expert_ways`, for a module of stacked matrices of which nobody knows what it computes."""
    at = generic(path)
    stacks = [name for name, one in module.named_parameters(recurse=False) if one.ndim == 3]
    if len(stacks) != len(list(module.named_parameters(recurse=False))) or len(stacks) not in (2, 3):
        return
    for up in ("packed_colwise", "colwise", "packed_rowwise", "rowwise"):
        down = "rowwise" if up.endswith("colwise") else "colwise"
        entries = {f"{at}.{name}": up for name in stacks[:-1]} | {f"{at}.{stacks[-1]}": down}
        for extra in dict.fromkeys(((), inside)):
            yield {**entries, **dict.fromkeys(extra, "moe_identity_expert"), at: "moe_tp_experts"}


def stack_ways(module: nn.Module, path: str, routers: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """As `spread_ways`, for such a module."""
    at = generic(path)
    entries = {f"{at}.{name}": "grouped_gemm" for name, _ in module.named_parameters(recurse=False)}
    yield {**entries, at: "ep_dispatch_experts"}
    for router in routers:
        yield {router: "ep_router", **entries, at: "moe_tp_experts"}
