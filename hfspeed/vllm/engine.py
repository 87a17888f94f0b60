"""One engine under a stopwatch: what serves, and when each token of a batch came."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

Clock = Callable[[], float]


@dataclass(frozen=True)
class Run:
    """One batch, from its first request to its last token; every time in seconds.

    Attributes:
        seconds / cpu: the whole batch, by the wall and by the processors.
        first: per request, how long its first token took.
        gaps: between one token and the next of a request, all requests together.
        decode_seconds / decode_cpu / decode_tokens: from the moment when every request had its first token.
        tokens: per request, what was generated.
    """

    seconds: float
    cpu: float
    first: list[float]
    gaps: list[float]
    decode_seconds: float
    decode_cpu: float
    decode_tokens: int
    tokens: list[list[int]]


class Notes:
    """Takes down when which request got tokens."""

    def __init__(self, requests: int, cpu: Clock) -> None:
        self.cpu = cpu
        self.tokens: list[list[int]] = [[] for _ in range(requests)]
        self.stamps: list[list[float]] = [[] for _ in range(requests)]
        self.waiting = set(range(requests))
        self.decoding: tuple[float, float, int] | None = None
        self.start, self.start_cpu = time.perf_counter(), cpu()

    def take(self, request: int, tokens: Sequence[int], now: float) -> None:
        """``request`` got more tokens."""
        if not tokens:
            return
        self.tokens[request] += tokens
        self.stamps[request].append(now)
        self.waiting.discard(request)
        if not self.waiting and self.decoding is None:
            self.decoding = (now, -1.0, 0)

    def step(self) -> None:
        """All tokens of one step are in: from here on the batch only decodes, if every request has begun."""
        if self.decoding is not None and self.decoding[1] < 0:
            self.decoding = (self.decoding[0], self.cpu(), self._count())

    def done(self) -> Run:
        """What was measured."""
        end, cpu = time.perf_counter(), self.cpu()
        self.step()
        at, used, count = self.decoding or (end, cpu, 0)
        gaps = [later - sooner for one in self.stamps for sooner, later in pairwise(one)]
        return Run(
            seconds=end - self.start,
            cpu=cpu - self.start_cpu,
            first=[one[0] - self.start for one in self.stamps if one],
            gaps=gaps,
            decode_seconds=end - at,
            decode_cpu=cpu - used,
            decode_tokens=self._count() - count,
            tokens=self.tokens,
        )

    def _count(self) -> int:
        return sum(map(len, self.tokens))


class Engine:
    """vLLM's ``LLM`` on prompts that are token ids; with data parallelism its asynchronous engine, as the server has.

    Args:
        settings: vLLM's own, by keyword.
        cpu: processor seconds used so far.
    """

    def __init__(self, settings: dict[str, Any], cpu: Clock) -> None:
        self.cpu = cpu
        self.loop: asyncio.AbstractEventLoop | None = None
        if settings.get("data_parallel_size", 1) > 1:
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM

            self.loop = asyncio.new_event_loop()
            self.engine: Any = self.loop.run_until_complete(_made(AsyncLLM, AsyncEngineArgs(**settings)))
        else:
            from vllm import LLM

            self.llm = LLM(**settings)
            self.engine = self.llm.llm_engine
        self.count = 0

    def facts(self) -> dict[str, Any]:
        """What serves: the model's class and plan on every rank, and room in the cache, in tokens."""
        if self.loop is None:
            ranks = self.llm.apply_model(described)
        else:
            ranks = self.loop.run_until_complete(self.engine.collective_rpc("apply_model", args=(described,)))
        cache = self.engine.vllm_config.cache_config
        room = (cache.num_gpu_blocks or 0) * cache.block_size
        return {"ranks": ranks, "cache_tokens": room, "block_size": cache.block_size}

    def run(self, prompts: Sequence[Sequence[int]], length: int, told: Sequence[int] | None = None) -> Run:
        """Generate ``length`` tokens for each prompt, all requests handed over at once.

        ``told`` are the tokens to write, one for each prompt, over and over.
        """
        sampling = [_sampling(length, told[number] if told else None) for number in range(len(prompts))]
        names = [f"{self.count + number}" for number in range(len(prompts))]
        self.count += len(prompts)
        if self.loop is not None:
            return self.loop.run_until_complete(self._streamed(prompts, sampling, names))
        return self._stepped(prompts, sampling, names)

    def _stepped(self, prompts: Sequence[Sequence[int]], sampling: Sequence[Any], names: list[str]) -> Run:
        notes, numbers = Notes(len(prompts), self.cpu), {}
        for number, (prompt, name) in enumerate(zip(prompts, names, strict=True)):
            known = self.engine.add_request(name, {"prompt_token_ids": list(prompt)}, sampling[number])
            numbers[name] = numbers[known or name] = number
        while self.engine.has_unfinished_requests():
            outputs = self.engine.step()
            now = time.perf_counter()
            for output in outputs:
                notes.take(numbers[output.request_id], output.outputs[0].token_ids, now)
            notes.step()
        return notes.done()

    async def _streamed(self, prompts: Sequence[Sequence[int]], sampling: Sequence[Any], names: list[str]) -> Run:
        notes = Notes(len(prompts), self.cpu)

        async def one(number: int) -> None:
            prompt = {"prompt_token_ids": list(prompts[number])}
            async for output in self.engine.generate(prompt, sampling[number], names[number]):
                notes.take(number, output.outputs[0].token_ids, time.perf_counter())
                notes.step()

        await asyncio.gather(*map(one, range(len(prompts))))
        return notes.done()


def _sampling(length: int, told: int | None) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        max_tokens=length,
        temperature=0,
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        allowed_token_ids=None if told is None else [told],
    )


async def _made(engine: Any, arguments: Any) -> Any:
    """The asynchronous engine binds itself to the loop in which it is made."""
    return engine.from_engine_args(arguments)


def described(model: Any) -> dict[str, Any]:
    """The class of a served model, how many ops of each kind its plan has, and the accelerator's peak memory."""
    import torch

    plan = getattr(model, "plan", None)
    ops = Counter(type(op).__name__ for op in plan.ops) if plan is not None else {}
    peak = torch.cuda.max_memory_reserved() if torch.cuda.is_available() else 0
    return {"class": f"{type(model).__module__}.{type(model).__name__}", "ops": dict(ops), "gpu_bytes": peak}
