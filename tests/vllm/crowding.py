"""Many requests at once, in little room, against the same requests one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import serving

REQUESTS = 64
TOKENS = 8
ROOM = {
    "max_num_seqs": REQUESTS,
    "max_num_batched_tokens": 96,  # prompts come in pieces, beside single tokens of others
    "block_size": 32,
    "num_gpu_blocks_override": 12,  # of some 150 that all requests would need, so some are thrown out and begin again
    "enable_prefix_caching": True,
    "disable_log_stats": False,
}
SHARED = [5 + 3 * i % 239 for i in range(32)]
"""What every fourth prompt begins with."""


def prompts() -> list[list[int]]:
    """Prompts of 1 to 100 tokens, all different; windows in these tests are 32 tokens or fewer."""
    lengths = [1 + (37 * i) % 100 for i in range(REQUESTS)]
    own = [[(7 + 11 * i + (3 + i % 5) * j) % 241 + 3 for j in range(length)] for i, length in enumerate(lengths)]
    return [SHARED + one[: 100 - len(SHARED)] if i % 4 == 0 else one for i, one in enumerate(own)]


def answers(
    checkpoint: Path, *, seeded: bool = False, tokens: int = TOKENS, requests: int = REQUESTS, **settings: Any
) -> dict[str, Any]:
    """``served``, ``differing`` (numbers of the requests whose tokens differ), ``apart``, ``preempted``, ``cached``."""
    from vllm import LLM, SamplingParams

    # a request with a seed whose prompt comes in pieces stops vLLM on CPUs: their generators have no offset
    whole = {"max_num_batched_tokens": 8192} if seeded else {}
    llm = LLM(model=str(checkpoint), **(serving.DEFAULTS | ROOM | whole | settings))
    how: dict[str, Any] = {"max_tokens": tokens, "logprobs": 1, "ignore_eos": True, "detokenize": False}
    sampled: list[dict[str, Any]] = [{"temperature": 0.7, "seed": i} for i in range(requests)]
    ways = [SamplingParams(**(one if seeded else {"temperature": 0}), **how) for one in sampled]
    asked = [{"prompt_token_ids": prompt} for prompt in prompts()[:requests]]
    alone = []
    for prompt, way in zip(asked, ways, strict=True):
        llm.reset_prefix_cache()
        alone += llm.generate([prompt], [way], use_tqdm=False)
    llm.reset_prefix_cache()
    before = _preemptions(llm)
    together = llm.generate(asked, ways, use_tqdm=False)
    preempted = _preemptions(llm) - before
    again = llm.generate(asked, ways, use_tqdm=False)
    differing, apart = set(), 0.0
    for crowd in (together, again):
        for number, (one, other) in enumerate(zip(alone, crowd, strict=True)):
            mine, theirs = _told(one), _told(other)
            if [token for token, _ in mine] != [token for token, _ in theirs]:
                differing.add(number)
            else:
                apart = max(apart, *(abs(a - b) for (_, a), (_, b) in zip(mine, theirs, strict=True)))
    cached = sum(output.num_cached_tokens or 0 for output in (*together, *again))
    return {
        "served": llm.apply_model(serving.served),
        "differing": sorted(differing),
        "apart": apart,
        "preempted": preempted,
        "cached": cached,
    }


def _told(output: Any) -> list[tuple[int, float]]:
    got = output.outputs[0]
    return [(token, entry[token].logprob) for entry, token in zip(got.logprobs, got.token_ids, strict=True)]


def _preemptions(llm: Any) -> int:
    return sum(int(one.value) for one in llm.get_metrics() if one.name == "vllm:num_preemptions")
