"""Block-quantised experts in vLLM's own holder: on every rank each scale is that of the block it stands for.

The kernels for them are not on every CPU, so what a rank holds is unpacked and compared, not run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

EXPERTS = "model.layers.{}.mlp.experts"
COUNT, WIDTH, INNER = 4, 256, 256
Checkpoint = Callable[[str], Path]


@pytest.fixture(scope="module")
def stored(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    import checkpoints
    from safetensors.torch import load_file

    folder = tmp_path_factory.mktemp("blocks") / "folder"
    checkpoints.in_blocks(folder, checkpoint("blocks"))
    return load_file(folder / "model.safetensors")


@pytest.fixture
def holder(serving: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """VLLM's holder of 4 experts, as a rank of several builds it."""
    from vllm import distributed
    from vllm.config import CompilationConfig, VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.fused_moe import FusedMoEFactory, config
    from vllm.model_executor.layers.quantization import fp8

    # which kernel will run is asked at once, and there may be none here; what is held does not hang on it
    monkeypatch.setattr(fp8, "select_fp8_moe_backend", lambda **_: (None, None))
    blocks = fp8.Fp8Config(is_checkpoint_fp8_serialized=True, weight_block_size=[128, 128])

    def one(layer: int, rank: int, ranks: int, *, spread: bool) -> Any:
        monkeypatch.setattr(config, "get_tensor_model_parallel_rank", lambda: rank)
        monkeypatch.setattr(distributed, "get_tensor_model_parallel_world_size", lambda: ranks)
        settings = VllmConfig(compilation_config=CompilationConfig(mode=0), quant_config=blocks)
        settings.parallel_config.enable_expert_parallel = spread
        with set_current_vllm_config(settings):
            runner = FusedMoEFactory(
                num_experts=COUNT,
                top_k=2,
                hidden_size=WIDTH,
                intermediate_size=INNER,
                params_dtype=torch.bfloat16,
                quant_config=blocks,
                tp_size=ranks,
                dp_size=1,
                pcp_size=1,
                prefix=EXPERTS.format(layer),
            )
        return runner.routed_experts

    return one


def unpacked(weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return weight.float() * scale.repeat_interleave(128, -2).repeat_interleave(128, -1)


@pytest.mark.parametrize(("ranks", "spread"), [(1, False), (2, False), (2, True)])
def test_each_scale_is_with_its_block(
    checkpoint: Checkpoint,
    stored: dict[str, torch.Tensor],
    holder: Callable[..., Any],
    ranks: int,
    spread: bool,
) -> None:
    from hfspeed.planner.build import build
    from hfspeed.planner.conversion import Conversion
    from hfspeed.planner.decide import decide
    from hfspeed.planner.load import load
    from hfspeed.vllm.expert_pieces import ExpertPieces

    subject = load(str(checkpoint("blocks")))
    plan, author = decide(subject), build(subject.model_class, subject.config)
    for rank in range(ranks):
        root = build(subject.model_class, subject.config)
        held = [holder(number, rank, ranks, spread=spread) for number in range(2)]
        for number, one in enumerate(held):
            fused = nn.Module()
            fused.held = one
            root.get_submodule(EXPERTS.format(number).rpartition(".")[0]).experts = fused
        loader = ExpertPieces(plan, Conversion(author))
        assert not any(".experts." in name for name, _ in loader.left(root, stored.items()))
        loader.check(root)
        for number, one in enumerate(held):
            _compare(one, stored, number, SimpleNamespace(rank=rank, ranks=ranks, spread=spread))


def _compare(held: Any, stored: dict[str, torch.Tensor], layer: int, place: Any) -> None:
    """Every expert that this rank has, unpacked, is the share of the one on disk, unpacked."""
    share = INNER if place.spread else INNER // place.ranks
    start = 0 if place.spread else place.rank * share
    experts = COUNT // place.ranks if place.spread else COUNT
    first = place.rank * experts if place.spread else 0
    assert held.w13_weight.shape == (experts, 2 * share, WIDTH)
    assert held.w13_weight_scale_inv.shape == (experts, 2 * share // 128, WIDTH // 128)
    for local in range(experts):
        whole = {}
        for name in ("gate_proj", "up_proj", "down_proj"):
            at = f"{EXPERTS.format(layer)}.{first + local}.{name}.weight"
            whole[name] = unpacked(stored[at], stored[f"{at}_scale_inv"])
        rows = [whole[name][start : start + share] for name in ("gate_proj", "up_proj")]
        up = unpacked(held.w13_weight[local], held.w13_weight_scale_inv[local])
        down = unpacked(held.w2_weight[local], held.w2_weight_scale_inv[local])
        torch.testing.assert_close(up, torch.cat(rows), rtol=0, atol=0)
        torch.testing.assert_close(down, whole["down_proj"][:, start : start + share], rtol=0, atol=0)
