"""Saved buffers whose values the plan took from the author's ``__init__``: a checkpoint must not say otherwise."""

from __future__ import annotations

import torch
from torch import nn

from hfspeed.errors import CheckpointError
from hfspeed.plan import Attention, Norm, Plan, Positions, Rotary


class Baked:
    """The buffers that an exchanged module, or attention measured by running it, no longer reads.

    Args:
        plan: the model's plan.
        author: the author's ``ForCausalLM`` before anything in it is replaced; its buffers are real.
    """

    def __init__(self, plan: Plan, author: nn.Module) -> None:
        taken = {op.path for op in plan.ops if isinstance(op, Norm | Positions | Rotary)}
        taken |= {op.path for op in plan.ops if isinstance(op, Attention) and op.measured}
        saved = set(author.state_dict())
        self.values = {
            name: buffer
            for name, buffer in author.named_buffers(remove_duplicate=False)
            if name in saved and name.rpartition(".")[0] in taken and not buffer.is_meta
        }

    def check(self, name: str, source: str, tensor: torch.Tensor) -> None:
        """Hold a tensor on disk against the value that was computed.

        Args:
            name: its name on disk.
            source: its name in the author's state dict.
            tensor: any shape.

        Raises:
            CheckpointError: they differ.
        """
        made = self.values.get(source)
        if made is None or (tensor.shape == made.shape and torch.equal(tensor.to(made), made)):
            return
        raise CheckpointError(
            f"{name} on disk is not what `__init__` computes for this buffer, and the plan was made with that; save it "
            f"with `persistent=False`, or keep it in the configuration"
        )
