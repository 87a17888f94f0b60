"""Tables of cosines and sines, handed out up to the number of tokens and written anew for a longer text."""

import torch
from torch import nn


class Angles(nn.Module):
    """One row for each position, each angle twice in it."""

    def __init__(self, size, longest, theta):
        super().__init__()
        self.size, self.longest, self.theta = size, longest, theta
        self.rows = 0
        self.write(longest)

    def speeds(self, rows, theta=None):
        """How far one position turns each pair of channels, in a table of that many rows."""
        exponents = torch.arange(self.size // 2, dtype=torch.float32) * (2 / self.size)
        return (self.theta if theta is None else theta) ** -exponents

    def steps(self, rows):
        return torch.arange(rows, dtype=torch.float32)

    def write(self, rows, device=None):
        angles = self.steps(rows)[:, None] * self.speeds(rows)[None, :]
        angles = angles.repeat(1, 2).to(device)
        self.register_buffer("cosines", torch.cos(angles), persistent=False)
        self.register_buffer("sines", torch.sin(angles), persistent=False)
        self.rows = rows

    def forward(self, like, tokens):
        if tokens > self.rows:
            self.write(tokens, like.device)
        return self.cosines[:tokens].to(like.dtype), self.sines[:tokens].to(like.dtype)


class SlowerAngles(Angles):
    """Positions are divided, so that more of them fit into what was trained."""

    def __init__(self, size, longest, theta, factor):
        self.factor = factor
        super().__init__(size, longest, theta)

    def steps(self, rows):
        return super().steps(rows) / self.factor


class WiderAngles(SlowerAngles):
    """The base grows with every table that is longer than what was trained; positions stay what they are."""

    def steps(self, rows):
        return Angles.steps(self, rows)

    def speeds(self, rows, theta=None):
        beyond = max(rows / self.longest - 1, 0.0)
        wider = (1 + self.factor * beyond) ** (self.size / (self.size - 2))
        return super().speeds(rows, self.theta * wider)


STRETCHES = {"linear": SlowerAngles, "dynamic": WiderAngles}


def angles_of(config, size):
    plain = (size, config.max_position_embeddings, config.rope_theta)
    if config.rope_scaling is None:
        return Angles(*plain)
    return STRETCHES[config.rope_scaling["type"]](*plain, config.rope_scaling["factor"])
