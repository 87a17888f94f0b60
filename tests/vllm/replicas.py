"""Serve a tiny checkpoint by two replicas that share their experts, in a process of its own; print what was wrong.

    python replicas.py CHECKPOINT
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent)]


async def answer(checkpoint: Path) -> dict[str, Any]:
    """Tokens and log probabilities beside what is expected, and the classes that served."""
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.async_llm import AsyncLLM

    from hfspeed.vllm.engine import described

    engine = AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            model=str(checkpoint),
            model_impl="transformers",
            skip_tokenizer_init=True,
            dtype="float32",
            enforce_eager=True,
            max_model_len=128,
            data_parallel_size=2,
            enable_expert_parallel=True,
            distributed_executor_backend="uni",
        )
    )
    wanted = json.loads((checkpoint / "expected.json").read_text())
    sampling = SamplingParams(
        max_tokens=len(wanted[0]["tokens"]),
        temperature=0,
        logprobs=1,
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )

    async def one(number: int) -> Any:
        prompt = {"prompt_token_ids": wanted[number]["prompt"]}
        async for output in engine.generate(prompt, sampling, f"{number}"):
            last = output
        return last.outputs[0]

    found = await asyncio.gather(*map(one, range(len(wanted))))
    served = await engine.collective_rpc("apply_model", args=(described,))
    same, apart = True, 0.0
    for own, got in zip(wanted, found, strict=True):
        same = same and list(got.token_ids) == own["tokens"]
        chosen = [entry[token].logprob for entry, token in zip(got.logprobs, got.token_ids, strict=True)]
        apart = max(apart, *(abs(a - b) for a, b in zip(chosen, own["logprobs"], strict=True)))
    engine.shutdown()
    classes = sorted({one["class"] for one in served})
    return {"served": classes, "tokens": same, "apart": apart}


if __name__ == "__main__":
    import serving

    serving.settle(Path(os.environ["HFSPEED_REPLICAS"]))
    os.environ.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)
    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"  # to ask each replica for its class
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "0|1")
    print(json.dumps(asyncio.run(answer(Path(sys.argv[1])))))
