"""Shapes of mixtures of experts: who routes, how experts are kept, what is done to their weights."""

from __future__ import annotations

from shape import Shape

EXPAND = "class Block(nn.Module):"
USED = "self.expand = Expand(config)"
RESULT = "return self.expand(self.between(stream)) + stream"
BLOCK = '''class Mixture(nn.Module):
    """Several gated blocks, of which each token takes two."""

    def __init__(self, config):
        super().__init__()
        self.gate = nn.Linear(config.width, 4, bias=False)
        self.experts = nn.ModuleList(Expand(config) for _ in range(4))

    def forward(self, stream):
        flat = stream.reshape(-1, stream.shape[-1])
        scores = self.gate(flat).softmax(-1, dtype=torch.float32)
        weights, chosen = scores.topk(2, dim=-1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(flat.dtype)
        result = torch.zeros_like(flat)
        for index, expert in enumerate(self.experts):
            rows, column = torch.where(chosen == index)
            result.index_add_(0, rows, expert(flat[rows]) * weights[rows, column, None])
        return result.reshape(stream.shape)


class Block(nn.Module):'''
SCORES = "        scores = self.gate(flat).softmax(-1, dtype=torch.float32)\n"
CHOICE = "        weights, chosen = scores.topk(2, dim=-1)\n"
SHARE = "        weights = (weights / weights.sum(-1, keepdim=True)).to(flat.dtype)\n"
LOOP = "            result.index_add_(0, rows, expert(flat[rows]) * weights[rows, column, None])\n"
END = "        return result.reshape(stream.shape)"
FOUND = "rows, column = torch.where(chosen == index)"
LIST = "        self.experts = nn.ModuleList(Expand(config) for _ in range(4))\n"
CORRECTED = """\
        chosen = (scores + self.bias).topk(2, dim=-1).indices
        weights = scores.gather(-1, chosen)
"""
OF_GROUPS = """\
        groups = scores.view(-1, 2, 2).amax(-1)
        kept = torch.zeros_like(groups).scatter(1, groups.argmax(-1, keepdim=True), 1.0)
        weights, chosen = (scores * kept.repeat_interleave(2, -1)).topk(2, dim=-1)
"""
FORWARD = "def forward(self, stream):"
TOLD = (("HFS301", "info", FOUND),)


def mixture(*pairs: tuple[str, str], **more: str) -> dict[str, str]:
    """The block with some of its text changed, in the place of the plain one."""
    text = BLOCK
    for old, new in pairs:
        assert text.count(old) >= 1, old
        text = text.replace(old, new)
    return {EXPAND: text, USED: "self.expand = Mixture(config)", **more}


SHAPES = {
    "8a a bare gate and a loop": Shape(mixture(), TOLD),
    "8b another name": Shape(mixture(("self.experts", "self.mlps")), TOLD),
    "8c returns its scores": Shape(
        {**mixture((END, END + ", scores")), RESULT: "return self.expand(self.between(stream))[0] + stream"}, TOLD
    ),
    "8d corrected by a bias": Shape(mixture(
        (LIST, LIST + '        self.register_buffer("bias", torch.linspace(-1.0, 1.0, 4))\n'),
        (SCORES, "        scores = self.gate(flat).sigmoid()\n"),
        (CHOICE, CORRECTED),
    ), TOLD),
    "8e softmax of the chosen": Shape(mixture(
        (SCORES, "        scores = self.gate(flat)\n"), (SHARE, "        weights = weights.softmax(-1)\n"),
    ), TOLD),
    "8f of groups": Shape(mixture(
        (CHOICE, OF_GROUPS),
    ), TOLD),
    "8g weighed before": Shape(mixture(
        (LOOP, "            result.index_add_(0, rows, expert(flat[rows] * weights[rows, column, None]))\n"),
    ), (*TOLD, ("HFS302", "info", FORWARD), ("HFS801", "warning", FORWARD))),
    "8h a shared one with a gate": Shape(mixture(
        (LIST, LIST + "        self.shared = Expand(config)\n"
                      "        self.shared_gate = nn.Linear(config.width, 1, bias=False)\n"),
        (END, "        result = result + self.shared(flat) * self.shared_gate(flat).sigmoid()\n" + END),
    ), TOLD),
    "8i dropped when full": Shape(mixture(
        (f"{FOUND}\n", f"{FOUND}\n            rows, column = rows[:3], column[:3]\n"),
    ), (
        ("HFS301", "warning", FOUND), ("HFS801", "error", "result = torch.zeros_like(flat)"),
        ("HFS801", "error", "class PlainForCausalLM(PlainPreTrainedModel, GenerationMixin):"),
    ), served=False),
    "8k dense at first": Shape({
        **mixture(), USED: "self.expand = Expand(config) if layer_idx == 0 else Mixture(config)",
    }, TOLD),
}  # fmt: skip
