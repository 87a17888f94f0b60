"""The author's forward and the plan's, run on the same prompts in every way of serving, and compared."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch import nn

from hfspeed.errors import RefusedError
from hfspeed.plan import Attention, Embed, Head, Heads, History, Plan, Proof, Stacked, laws
from hfspeed.planner.mismatch import BOUNDS, Mismatch, apart, arithmetic, many, running
from hfspeed.planner.starts import skipped
from hfspeed.planner.witness import Row, Witness, compare, distance
from hfspeed.recurrences.written import mask_of
from hfspeed.reference import run
from hfspeed.reference.asking import asked, scores
from hfspeed.reference.build import build
from hfspeed.reference.ranks import Group, Ranks
from hfspeed.refusal import Reason, Refusal

ROWS = 256
"""Hidden states that the wrapper is given at once, besides those of each prompt."""
LONGEST = 2048
"""Tokens of a prompt that are still run; a window must be shorter."""


@dataclass
class Contest:
    """The author's results, and the largest error seen so far; with ``spread`` ranks hold whole experts.

    One of the prompts has ``longest`` tokens, where that is more than every window.

    What is served is built from a copy that never ran: what the author's run leaves in the model is not there either.
    """

    plan: Plan
    model: nn.Module
    classes: ModuleType | None
    dtype: torch.dtype
    spread: bool = False
    longest: int = 0
    witness: Witness = field(default_factory=Witness)
    prompts: list[torch.Tensor] = field(default_factory=list)
    hidden: list[torch.Tensor] = field(default_factory=list)
    logits: list[torch.Tensor] = field(default_factory=list)
    errors: dict[str, float] = field(default_factory=dict)
    worst: dict[str, float] = field(default_factory=dict)
    fresh: nn.Module = field(init=False)

    def __post_init__(self) -> None:
        self.fresh = copy.deepcopy(self.model)

    @property
    def bound(self) -> float:
        """The relative error that is allowed."""
        return BOUNDS[self.dtype]

    @property
    def alone(self) -> list[Row]:
        """Each prompt in a row of its own."""
        return [((number, len(prompt)),) for number, prompt in enumerate(self.prompts)]

    def schedules(self) -> tuple[tuple[str, list[Row]], ...]:
        """Prompts alone; then packed, in chunks, a late arrival among them, and one token at a time."""
        short, long, late = (len(prompt) for prompt in self.prompts)
        half = long // 2
        packed: list[Row] = [
            ((0, short - 2), (1, half)),
            ((2, late - 2), (0, 1), (1, long - half - 2)),
            ((1, 1), (0, 1), (2, 1)),
            ((2, 1),),  # a row of a single token may be another branch
            ((1, 1),),
        ]
        return ("prompts alone", self.alone), ("prompts packed and continued token by token", packed)

    def author_runs(self) -> None:
        """The author's own forward on each prompt, without positions given, as training calls it."""
        # where positions are made of token ids, padding counts otherwise, and the plan says so
        avoided = skipped(self.model) if self.plan.wrapper.first_position else ()
        self.prompts = prompts(self.plan, avoided=avoided, least=self.longest)
        base: list[torch.Tensor] = []
        hook = run.watched(self.plan, self.model, base)
        with arithmetic(self.dtype), self.witness.watch(self.model), running("the author's model", self.witness):
            for prompt in self.prompts:
                self.logits.append(scores(self.model(**asked(self.model, prompt[None]))))
        hook.remove()
        self.hidden = base
        with arithmetic(self.dtype), running("the author's model", self.witness):
            self.logits = [self._all(*pair) for pair in zip(self.prompts, self.logits, strict=True)]

    def _all(self, prompt: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """``[1, tokens, vocab]``: an author who gives those of the last token alone is asked for each in turn."""
        if logits.ndim == 3 and logits.shape[1] == len(prompt):
            return logits
        starts = [prompt[None, : count + 1] for count in range(len(prompt))]
        last = [scores(copy.deepcopy(self.fresh)(**asked(self.model, start))) for start in starts]
        return torch.stack([one.reshape(-1, one.shape[-1])[-1] for one in last])[None]

    def wrapper(self) -> None:
        """The wrapper alone gives the same logits, of all tokens, of each single one, and of many at once."""
        how, stopped, model = "the wrapper alone", Witness(), copy.deepcopy(self.fresh)
        with arithmetic(self.dtype), running(how, stopped), stopped.watch(model):
            for hidden, logits in zip(self.hidden, self.logits, strict=True):
                single = [run.logits(self.plan, model, row) for row in torch.split(hidden, 1, 1)]
                self._gives(logits, how, run.logits(self.plan, model, hidden), torch.cat(single, 1))
            hidden, logits = (torch.cat(values, 1) for values in (self.hidden, self.logits))
            times = -(-ROWS // hidden.shape[1])
            self._gives(logits.repeat(1, times, 1), how, run.logits(self.plan, model, hidden.repeat(1, times, 1)))

    def _gives(self, logits: torch.Tensor, how: str, *found: torch.Tensor) -> None:
        error = max(distance(logits, one) for one in found)
        self.worst["the wrapper, row by row"] = max(error, self.worst.get("the wrapper, row by row", 0.0))
        if not error <= self.bound:
            told = f"logits differ by {error:.1e} when the wrapper gets the hidden states row by row"
            raise Mismatch(Refusal("logits", Reason.WRAPPER_NOT_ROWWISE, told), error, how)

    def ours(self, count: int, cut: int, name: str, rows: list[Row]) -> None:
        """One way to serve the plan, compared with the author on every rank."""
        how = f"{many(count, 'rank')}{' of whole experts' * self.spread}, {many(cut, 'stage')}, {name}"
        witnesses = [Witness() for _ in range(count)]

        def serve(rank: int, group: Group) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
            with arithmetic(self.dtype), running(how, witnesses[rank]):
                return self._serve(rank, group, cut, rows, witnesses[rank])

        with running(how, witnesses[0]):
            results = Ranks(count).run(serve)
        for witness, (hidden, logits) in zip(witnesses, results, strict=True):
            last = Witness()
            last.seen = {"hidden states": hidden, "logits": logits}
            first = Witness()
            first.seen = {"hidden states": self.hidden, "logits": self.logits}
            final = dict(compare(first, last, self.alone, rows))
            inner = [at for at in compare(self.witness, witness, self.alone, rows) if at[0] not in moved(self.plan)]
            for path, error in [*final.items(), *inner]:
                self.errors[path] = max(error, self.errors.get(path, 0.0))
            if not final.keys() == first.seen.keys() or not max(final.values()) <= self.bound:
                raise apart(self.witness, inner, final, self.bound, how)

    def _serve(
        self, rank: int, group: Group, cut: int, rows: list[Row], witness: Witness
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        plan, hidden, logits = self.plan, [], []
        place: dict[str, Any] = {"rank": rank, "ranks": group.size, "group": group}
        if self.spread:
            place = {"spread": group}
        chain: list[Any] = [
            build(plan, self.fresh, self.classes, stage=(number, cut), **place) for number in range(cut)
        ]
        done = [0] * len(self.prompts)
        with ExitStack() as stack:
            for built in chain:
                stack.enter_context(witness.watch(built))
            for row in rows:
                tokens = torch.cat([self.prompts[name][done[name] : done[name] + count] for name, count in row])[None]
                value = None
                for built in chain:
                    positions = built.hfspeed_packing.lay(*row)
                    value = run.hidden(plan, built, tokens, positions, value)
                assert value is not None
                hidden.append(value)
                logits.append(run.logits(plan, chain[-1], value))
                for name, count in row:
                    done[name] += count
        return hidden, logits

    def proofs(self, cases: Iterable[tuple[int, int]]) -> list[Proof]:
        """One proof per claim."""
        counts = sorted({count for count, _ in cases})
        cuts = sorted({cut for _, cut in cases})
        method = (
            f"author's forward against the plan, {str(self.dtype).removeprefix('torch.')}, "
            f"ranks {' '.join(map(str, counts))}{' of whole experts' * self.spread}, "
            f"stages {' '.join(map(str, cuts))}, packed and token by token"
        )
        final = max(self.errors["hidden states"], self.errors["logits"])
        found = {name: self.errors[name] for name in ("hidden states", "logits")} | self.worst
        for forward in self.plan.forwards:
            at = [error for path in forward.paths if (error := self.errors.get(path)) is not None]
            found[f"forward of {forward.name}"] = max(at, default=final)
        for op in self.plan.ops:
            if laws.fused(op):
                parent = op.path.rpartition(".")[0]
                error = self.errors.get(op.path, self.errors.get(parent, final))
                found[laws.claim(op)] = max(error, found.get(laws.claim(op), 0.0))
        return [Proof(claim, method, error, self.bound) for claim, error in found.items()]


def moved(plan: Plan) -> set[str]:
    """Paths of packed projections whose rows change places: what they give is the author's in another order."""
    return {op.path for op in plan.ops if isinstance(op, Stacked | Heads) and op.rows}


def prompts(plan: Plan, seed: int = 0, avoided: Collection[int] = (), least: int = 0) -> list[torch.Tensor]:
    """Three prompts of different lengths, the second longer than every window; without the tokens ``avoided``.

    The second has ``least`` tokens, or more.
    """
    spans = [size for op in plan.ops if isinstance(op, Attention) for size in (op.window, op.chunk and 2 * op.chunk)]
    masks = [mask_of(told) for op in plan.ops if isinstance(op, History) for told in op.masks]
    spans += [2 * mask.size if mask.kind == "chunk" else mask.size for mask in masks]
    windows = [size for size in spans if size is not None]
    longest = max([10, *windows, least - 7]) + 7
    if longest > LONGEST:
        raise RefusedError(plan.architecture, (_too_far(plan, max(windows)),))
    vocab = min((op.vocab for op in plan.ops if isinstance(op, Embed | Head)), default=64)
    source = torch.Generator().manual_seed(seed)
    known = torch.tensor([token for token in range(vocab) if token not in avoided])
    return [known[torch.randint(len(known), (length,), generator=source)] for length in (4, longest, 7)]


def _too_far(plan: Plan, window: int) -> Refusal:
    """What to tell of a window that no prompt of a proof reaches."""
    path = next((op.path for op in plan.ops if isinstance(op, Attention) and op.window == window), "")
    found = f"a window or chunk of {window} tokens, where proofs run {LONGEST} at most"
    help_ = "let it follow from a number of the configuration, which a small model has smaller; leave out one never met"
    return Refusal("attention", Reason.CANNOT_RUN, found, path, help=help_)
