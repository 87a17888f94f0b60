"""One of two processes: a folder loaded whole and by ``tp_plan="auto"``, and how far logits and gradients are apart."""

from __future__ import annotations

import sys

import torch
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM


def whole(value: torch.Tensor) -> torch.Tensor:
    return value.full_tensor() if isinstance(value, DTensor) else value


def main(folder: str) -> None:
    torch.distributed.init_process_group("gloo")
    given = {"trust_remote_code": True, "dtype": torch.float64}
    one = AutoModelForCausalLM.from_pretrained(folder, **given)
    many = AutoModelForCausalLM.from_pretrained(folder, tp_plan="auto", **given)
    logits = []
    for model in (one, many):
        y = whole(model(torch.arange(13)[None] * 7 % 100, use_cache=False).logits)
        logits.append(y.detach())
        (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)).sum().backward()
    split = sum(isinstance(p, DTensor) for p in many.parameters())
    far = [float((logits[0] - logits[1]).abs().max())]
    grads = dict(one.named_parameters())
    far += [float((whole(p.grad) - grads[n].grad).abs().max()) for n, p in many.named_parameters()]
    # both ranks write to one stream: a line and its end go out at once
    sys.stdout.write(f"RANK {torch.distributed.get_rank()} {split} {max(far):.3e}\n")
    sys.stdout.flush()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
