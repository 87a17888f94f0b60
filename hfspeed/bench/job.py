"""What is measured: a model, the engine's settings, and the prompts of each round."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hfspeed.bench.arms import Arm


@dataclass(frozen=True)
class Job:
    """One benchmark, the same for every arm.

    Attributes:
        model: a folder, or a name on the hub.
        prompts / input_len / output_len: how many, and of how many tokens.
        vocabulary: token ids of prompts are below this.
        engine: vLLM's settings by keyword, the arm's own aside.
        rounds / warmups: how often is measured, and how often is run before that.
        starts: how many warm starts are measured.
        restart: each arm's process lives for one round only, where several models do not fit beside each other.
        together: how many arms live at a time; shares an accelerator's memory among them.
        told: each request is told which token to write, over and over. What random weights would write differs by
            rounding from arm to arm, and with it which experts there are to compute.
    """

    model: str
    prompts: int
    input_len: int
    output_len: int
    vocabulary: int
    engine: dict[str, Any] = field(default_factory=dict)
    rounds: int = 5
    warmups: int = 1
    starts: int = 1
    restart: bool = False
    together: int = 1
    told: bool = False

    def settings(self, arm: Arm) -> dict[str, Any]:
        """All of the engine's settings for one arm."""
        return {
            "model": self.model,
            "model_impl": arm.model_impl,
            "skip_tokenizer_init": True,
            "max_model_len": self.input_len + self.output_len,
            "enable_prefix_caching": False,  # a round must not find what the one before computed
            "disable_log_stats": True,
            "gpu_memory_utilization": round(0.9 / (1 if self.restart else self.together), 3),
            **self.engine,
        }

    def tokens(self, round_: int) -> list[list[int]]:
        """The prompts of one round: random, and the same for every arm."""
        draw = random.Random(round_)  # noqa: S311  numbers to count with, no secrets
        return [[draw.randrange(1, self.vocabulary) for _ in range(self.input_len)] for _ in range(self.prompts)]

    def written(self, round_: int) -> list[int] | None:
        """What each request of a round is told to write; ``None`` where it writes what its arm finds most likely."""
        draw = random.Random(~round_)  # noqa: S311  as above
        return [draw.randrange(1, self.vocabulary) for _ in range(self.prompts)] if self.told else None


def has_weights(folder: Path) -> bool:
    """Whether weights lie beside the configuration."""
    return any(next(folder.glob(f"*.{ending}"), None) for ending in ("safetensors", "bin", "pt", "gguf"))


def vocabulary(config: dict[str, Any]) -> int:
    """How many token ids a configuration speaks of; a nested text configuration counts."""
    nested = next((entry for entry in config.values() if isinstance(entry, dict) and "vocab_size" in entry), {})
    return int(config.get("vocab_size") or nested.get("vocab_size") or 2)
