"""Where an op is built: the author's module, vLLM's settings, and this process's place among the ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from hfspeed.reference.answers import answers


@dataclass(frozen=True)
class Site:
    """What every builder needs.

    Attributes:
        root: the author's ``ForCausalLM``, parameters on meta.
        vllm_config: vLLM's settings.
        quant_config: how linears are quantised, or ``None``.
        above: prefix of the model's own names; empty but for drafts of another model.
        states: holders of states by name, as builders make them.
        apart: decoder layers are compiled apart; see `hfspeed.vllm.regions`.
        rank / ranks: this process's place in the tensor-parallel group.
    """

    root: nn.Module
    vllm_config: Any
    quant_config: Any
    above: str
    rank: int
    ranks: int
    states: dict[str, Any] = field(default_factory=dict)
    apart: bool = False

    def parent(self, path: str) -> tuple[nn.Module, str]:
        """The module that holds ``path``, and its last name."""
        above, _, name = path.rpartition(".")
        return self.root.get_submodule(above), name

    def put(self, path: str, module: nn.Module) -> None:
        """Put ``module`` at ``path``, where it answers for what is there."""
        parent, name = self.parent(path)
        setattr(parent, name, answers(module, parent._modules.get(name)))

    def prefix(self, path: str) -> str:
        """The name by which vLLM's quantisation, adapters and caches know ``path``."""
        return f"{self.above}.{path}" if self.above else path


def cache_name(path: str) -> str:
    """A name for a holder of a cache by which vLLM finds its layer's number: there is just one in it.

    The first number in the path stays one; where the path has none, all such holders count as the first layer's.
    """
    words: list[str] = []
    numbered = False
    for word in path.split("."):
        if word.isdigit() and numbered:
            words[-1] += f"_{word}"
        else:
            words.append(word)
            numbered = numbered or word.isdigit()
    return ".".join(words if numbered else [*words, "0"])
