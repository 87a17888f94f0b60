"""Quantised experts: every tensor on disk goes to its place in vLLM's layer exactly once, scales included."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

EXPERTS = "model.layers.{}.mlp.experts"
Checkpoint = Callable[[str], Path]


class Fp8MoEMethod:
    """Named as vLLM's is, which is how quantised layers are told."""


class Held(nn.Module):
    """Stands for vLLM's holder of experts, and takes down what it is handed."""

    quant_method = Fp8MoEMethod()

    def __init__(self) -> None:
        super().__init__()
        self.taken: dict[tuple[str, str, int], torch.Tensor] = {}
        for name in ("w13_weight", "w13_weight_scale_inv", "w2_weight", "w2_weight_scale_inv"):
            parameter = nn.Parameter(torch.empty(1), requires_grad=False)
            parameter.weight_loader = self.take
            self.register_parameter(name, parameter)

    def take(self, _: Any, tensor: torch.Tensor, name: str, *, shard_id: str, expert_id: int) -> None:
        key = (name.rpartition(".")[2], shard_id, expert_id)
        assert key not in self.taken
        self.taken[key] = tensor


@pytest.fixture(scope="module")
def stored(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    import checkpoints
    from safetensors.torch import load_file

    folder = tmp_path_factory.mktemp("blocks") / "folder"
    checkpoints.in_blocks(folder, checkpoint("blocks"))
    return load_file(folder / "model.safetensors")


def pieces(checkpoint: Checkpoint) -> tuple[Any, nn.Module, list[Held]]:
    """The loader, and a root whose experts are `Held`."""
    from hfspeed.planner.build import build
    from hfspeed.planner.conversion import Conversion
    from hfspeed.planner.decide import decide
    from hfspeed.planner.load import load
    from hfspeed.vllm.expert_pieces import ExpertPieces

    subject = load(str(checkpoint("blocks")))
    author = build(subject.model_class, subject.config)
    loader = ExpertPieces(decide(subject), Conversion(author))
    root = build(subject.model_class, subject.config)
    held = [Held(), Held()]
    for number, one in enumerate(held):
        fused = nn.Module()
        fused.held = one
        root.get_submodule(EXPERTS.format(number).rpartition(".")[0]).experts = fused
    return loader, root, held


def test_every_tensor_has_its_place(checkpoint: Checkpoint, stored: dict[str, torch.Tensor]) -> None:
    loader, root, held = pieces(checkpoint)
    left = dict(loader.left(root, stored.items()))
    loader.check(root)
    assert not any(".experts." in name for name in left)
    assert left.keys() == {name for name in stored if ".experts." not in name}
    roles = {"gate_proj": ("w13", "w1"), "up_proj": ("w13", "w3"), "down_proj": ("w2", "w2")}
    for number, one in enumerate(held):
        assert len(one.taken) == 4 * 3 * 2
        for expert in range(4):
            for name, (home, role) in roles.items():
                for leaf in ("weight", "weight_scale_inv"):
                    wanted = stored[f"{EXPERTS.format(number)}.{expert}.{name}.{leaf}"]
                    assert one.taken[f"{home}_{leaf}", role, expert] is wanted


@pytest.mark.parametrize("lost", ["2.up_proj.weight_scale_inv", "3.down_proj.weight"])
def test_what_is_missing_is_told(checkpoint: Checkpoint, stored: dict[str, torch.Tensor], lost: str) -> None:
    from hfspeed.errors import CheckpointError

    loader, root, _ = pieces(checkpoint)
    left = {name: tensor for name, tensor in stored.items() if name != f"{EXPERTS.format(1)}.{lost}"}
    list(loader.left(root, left.items()))
    with pytest.raises(CheckpointError, match=f"1 of .* are not on disk, .* of expert {lost[0]}"):
        loader.check(root)


def test_a_leaf_without_a_place_is_told(checkpoint: Checkpoint, stored: dict[str, torch.Tensor]) -> None:
    from hfspeed.errors import CheckpointError

    loader, root, _ = pieces(checkpoint)
    strange = {f"{EXPERTS.format(0)}.0.up_proj.zero_point": torch.zeros(1)}
    with pytest.raises(CheckpointError, match="has no place for it"):
        list(loader.left(root, strange.items()))
