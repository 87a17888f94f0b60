"""How far answers in bfloat16 are from the author's in float32: ``make precision``.

Each family's tiny checkpoint is rounded to bfloat16 once, so that all have the same weights. vLLM with hfspeed answers
three prompts each of 3, 7, 70 and 300 tokens with 16 tokens; transformers then gives the same tokens their log
probabilities, in float32 and in bfloat16, and native vLLM answers for itself. Prints the mean and the largest distance
from float32. Routers with random weights choose between experts that are almost alike, and rounding may decide; so
mixtures are measured once more with all experts chosen.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
for folder in (HERE.parent / "zoo", HERE.parent / "vllm", ROOT):
    sys.path.insert(0, str(folder))

import keeper  # noqa: E402
import serving  # noqa: E402
import torch  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402

LENGTHS, TIMES, NEW, LONGEST = (3, 7, 70, 300), 3, 16, 512
CHOSEN = "num_experts_per_tok"
ALLOWED = 0.02
"""The mean distance that hfspeed may have, unless transformers' own is larger."""
FAMILIES = (
    "mamba", "mamba2", "falcon_mamba", "jamba", "bamba", "granitemoehybrid", "falcon_h1", "nemotron_h", "zamba",
    "zamba2", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid", "lfm2", "lfm2_moe", "kimi_linear",
    "minimax",
)  # fmt: skip
SETTINGS: dict[str, Any] = {"dtype": "bfloat16", "max_model_len": LONGEST}


def prompts(words: int) -> list[list[int]]:
    lengths = list(enumerate(LENGTHS * TIMES))
    return [[3 + (7 + 2 * number) * at % (words - 4) for at in range(length)] for number, length in lengths]


def experts(config: Any) -> int:
    """How many experts each layer has; 0 if only one."""
    found = (getattr(config, name, None) for name in ("num_experts", "n_routed_experts", "num_local_experts"))
    return next((count for count in found if count and count > 1), 0) if hasattr(config, CHOSEN) else 0


def rounded(source: Path, folder: Path, every: bool) -> int:
    """Write the checkpoint in bfloat16, for prompts of 300 tokens; the size of its vocabulary."""
    config = AutoConfig.from_pretrained(source)
    if every:
        setattr(config, CHOSEN, experts(config))
    if hasattr(config, "max_position_embeddings"):
        config.max_position_embeddings = LONGEST
    model = AutoModelForCausalLM.from_pretrained(source, config=config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    return int(config.vocab_size)


def generated(checkpoint: Path, *, asked: list[list[int]], **settings: Any) -> dict[str, Any]:
    """What an engine answers: tokens, and the log probabilities it gives them."""
    from vllm import LLM, SamplingParams

    llm = LLM(model=str(checkpoint), **(serving.DEFAULTS | SETTINGS | settings))
    how = SamplingParams(max_tokens=NEW, temperature=0, logprobs=1, ignore_eos=True, detokenize=False)
    told = llm.generate([{"prompt_token_ids": one} for one in asked], how, use_tqdm=False)
    found = [one.outputs[0] for one in told]
    values = [[at[token].logprob for at, token in zip(one.logprobs, one.token_ids, strict=True)] for one in found]
    return {"served": llm.apply_model(serving.served), "tokens": [list(one.token_ids) for one in found], "logs": values}


@torch.no_grad()
def told(checkpoint: Path, asked: list[list[int]], tokens: list[list[int]], dtype: torch.dtype) -> list[list[float]]:
    """The log probabilities that transformers gives tokens behind prompts."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=dtype, attn_implementation="eager").eval()
    found = []
    for prompt, new in zip(asked, tokens, strict=True):
        scores = model(input_ids=torch.tensor([prompt + new[:-1]]), use_cache=False).logits[0, len(prompt) - 1 :]
        logs = scores.float().log_softmax(-1)
        found.append(logs.gather(-1, torch.tensor(new)[:, None])[:, 0].tolist())
    return found


def apart(one: list[list[float]], other: list[list[float]]) -> tuple[float, float]:
    """Mean and largest distance."""
    gaps = [abs(a - b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True)]
    return sum(gaps) / len(gaps), max(gaps)


def measured(source: Path, folder: Path, natively: bool, every: bool = False) -> dict[str, Any]:
    """Distances by who answered; ``error`` where the engine stops."""
    asked = prompts(rounded(source, folder, every))
    ours = serving.serve(folder, ask=generated, asked=asked)
    if "error" in ours:
        return {"error": ours["error"].strip().splitlines()[-1]}
    if "hfspeed" not in (served := ours["served"][0]):
        return {"error": f"served by {served}"}
    exact = told(folder, asked, ours["tokens"], torch.float32)
    found: dict[str, Any] = {"hfspeed": apart(ours["logs"], exact)}
    found["transformers"] = apart(told(folder, asked, ours["tokens"], torch.bfloat16), exact)
    if natively:
        # with prefix caching, some native models stop on CPUs at prompts that are longer than a page
        native = serving.serve(folder, ask=generated, asked=asked, model_impl="vllm", enable_prefix_caching=False)
        if "error" in native:
            found["native"] = "does not run"
        else:
            found["native"] = apart(native["logs"], told(folder, asked, native["tokens"], torch.float32))
    return found


def row(name: str, one: dict[str, Any]) -> str:
    cells = [one.get(who, "") for who in ("hfspeed", "transformers", "native")]
    shown = [f"{cell[0]:.4f} ({cell[1]:.2f})" if isinstance(cell, tuple) else str(cell) for cell in cells]
    return f"| {name} | {one['error'] if 'error' in one else ' | '.join(shown)} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make precision", description=__doc__)
    parser.add_argument("names", nargs="*", help="families (default: eighteen recurrent ones)")
    parser.add_argument("--checkpoints", type=Path, help="a folder of checkpoints; else they are written")
    parser.add_argument("--no-native", action="store_true", help="leave native vLLM out")
    given = parser.parse_args()
    torch.set_num_threads(1)
    names = given.names or list(FAMILIES)
    families = keeper.families(given.checkpoints, ROOT / ".zoo" / "checkpoints", names)
    worse = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
        serving.settle(Path(folder))
        print("| family | hfspeed | transformers in bfloat16 | native |\n| --- | --- | --- | --- |")
        for name in names:
            if "folder" not in families.get(name, {}):
                worse.append(name)
                print(f"| {name} | {json.dumps(families.get(name, 'no such family'))} |")
                continue
            source = Path(families[name]["folder"])
            rows = {name: (not given.no_native, False)}
            rows |= {f"{name}, all experts": (False, True)} if experts(AutoConfig.from_pretrained(source)) else {}
            for title, how in rows.items():
                one = measured(source, Path(folder) / title.replace(" ", "_"), *how)
                print(row(title, one), flush=True)
                bound = max(ALLOWED, one["transformers"][0]) if "transformers" in one else 0.0
                if "error" in one or one["hfspeed"][0] > bound:
                    worse.append(title)
    print(f"further than allowed: {', '.join(worse)}" if worse else "all are as near as allowed")
    return int(bool(worse))


if __name__ == "__main__":
    raise SystemExit(main())
