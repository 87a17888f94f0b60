"""Routers that ask for float32, and loops that add into it: proofs in float64 write both into one tensor."""

from __future__ import annotations

import sys
from pathlib import Path

from hfspeed.plan import Experts
from hfspeed.planner.decide import decide
from hfspeed.planner.load import load

sys.path.insert(0, str(Path(__file__).parent))
from mutants import mutant

BLOCK = '''class Expand(nn.Module):
    """Experts by a router in float32."""

    def __init__(self, config):
        super().__init__()
        self.many = nn.ModuleList(Gated(config) for _ in range(4))
        self.chooser = nn.Parameter(torch.empty(4, config.width).normal_())

    def weigh(self, tokens):
        scores = F.linear(tokens.type(torch.float32), self.chooser.type(torch.float32)).sigmoid()
        chosen = scores.topk(2, dim=-1)[1]
        return chosen, scores.gather(1, chosen)

    def mixed(self, tokens, chosen, shares):
        total = torch.zeros_like(tokens, dtype=shares.dtype)
        hot = F.one_hot(chosen, num_classes=len(self.many)).permute(2, 0, 1)
        # one expert after the other
        for number in range(len(self.many)):
            token, slot = torch.where(hot[number])
            if token.numel() > 0:
                found = self.many[number](tokens[token]) * shares[token, slot].unsqueeze(-1)
                total.index_add_(0, token, found)
        return total.type(tokens.dtype)

    def forward(self, stream):
        tokens = stream.view(-1, stream.shape[-1])
        chosen, shares = self.weigh(tokens)
        return self.mixed(tokens, chosen, shares).view(stream.shape)


class Block(nn.Module):'''


def test_they_are_experts_of_a_kernel(tmp_path: Path) -> None:
    mutant(tmp_path)
    file = tmp_path / "modeling_plain.py"
    code = file.read_text("utf-8").replace("class Expand(nn.Module):", "class Gated(nn.Module):")
    file.write_text(code.replace("class Block(nn.Module):", BLOCK), encoding="utf-8")
    plan = decide(load(str(tmp_path), trust_remote_code=True))
    assert [op.count for op in plan.ops if isinstance(op, Experts)] == [4, 4]
