"""A module that computes attention by hand gets paged attention, if running it shows what it computes."""

from __future__ import annotations

from typing import ClassVar, Final

from hfspeed.example import Example
from hfspeed.refusal import Reason

_PROJECT: Final = """
q = self.q(x).view(1, 6, -1, 8).transpose(1, 2)
k = self.k(x).view(1, 6, -1, 8).transpose(1, 2)
v = self.v(x).view(1, 6, -1, 8).transpose(1, 2)
"""
_MERGE: Final = "\nreturn self.o(h.transpose(1, 2).reshape(1, 6, -1))"
_MASK: Final = "\nmask = torch.ones(6, 6, dtype=torch.bool).tril()"
_WIDTHS: Final = {"q": 32, "k": 32, "v": 32, "o": 16}
_SOFTMAX: Final = "\nh = w.softmax(-1) @ v"


def _example(how: str, reason: Reason | None = None, after: str = "") -> Example:
    return Example(_PROJECT + how.strip() + _MERGE, widths=_WIDTHS, reason=reason, after=after)


class EagerAttention:
    """The scores are a multiple of query times key, perhaps capped, with a causal mask, a window or linear biases."""

    name: ClassVar[str] = "attention by hand"

    fuses: ClassVar[tuple[Example, ...]] = (
        _example(
            f"""
{_MASK}
w = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(~mask, float("-inf"))
h = F.softmax(w, dim=-1) @ v
""",
            after="h = self.attn(q.to(v.dtype), k.to(v.dtype), v, None)[0].transpose(1, 2)",
        ),
        _example(
            f"""
{_MASK}
w = torch.where(mask, torch.matmul(q * 0.3, k.transpose(2, 3)), torch.finfo(q.dtype).min)
w = F.dropout(w.float().softmax(-1), 0.1, self.training).to(v.dtype)
h = torch.matmul(w, v)
"""
        ),
        _example(
            """
age = torch.arange(6)[:, None] - torch.arange(6)[None]
w = torch.einsum("bhqd,bhkd->bhqk", q, k) * 0.5
w = w + torch.where((age >= 0) & (age < 3), 0.0, -1e9)
h = torch.einsum("bhqk,bhkd->bhqd", w.softmax(-1), v)
"""
        ),
        _example(
            """
bias = -torch.tensor([0.5, 0.25, 0.125, 0.0625])[:, None, None] * (torch.arange(6)[:, None] - torch.arange(6)).abs()
w = torch.baddbmm(bias.to(q), q[0], k[0].transpose(1, 2), alpha=0.25) + torch.ones(6, 6).triu(1).to(q) * -1e9
p = w.view(1, 4, 6, 6).softmax(-1)
h = torch.bmm(p.view(4, 6, 6), v[0])[None]
"""
        ),
        _example(
            f"""
{_MASK}
w = 5.0 * torch.tanh(q @ k.mT / 5.0) + torch.zeros(6, 6).to(q).masked_fill(~mask, float("-inf"))
{_SOFTMAX}
"""
        ),
        _example("h = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.2)"),
        _example(f"{_MASK}\nw = q @ k.mT\nw.div_(3.0)\nw.masked_fill_(~mask, -1e9)\n{_SOFTMAX}"),
        Example(
            _PROJECT
            + f"""
k, v = (t[:, :, None].expand(1, 2, 2, 6, 8).reshape(1, 4, 6, 8) for t in (k, v))
{_MASK}
h = (q @ k.transpose(-1, -2) * 0.3).masked_fill(~mask, -1e9).softmax(dim=-1) @ v
{_MERGE}
""",
            widths=_WIDTHS | {"k": 16, "v": 16},
            after="k[:, :: self.attn.repeats].to(v.dtype), v[:, :: self.attn.repeats], None)[0].transpose(1, 2)",
        ),
    )
    refuses: ClassVar[tuple[Example, ...]] = (
        _example(f"w = q @ k.mT * 0.3\n{_SOFTMAX}", Reason.MASK_NOT_CAUSAL),
        _example("h = F.scaled_dot_product_attention(q, k, v)", Reason.MASK_NOT_CAUSAL),
        _example(
            f"{_MASK}\nmask[4, 1] = False\nw = (q @ k.mT).masked_fill(~mask, -1e9)\n{_SOFTMAX}",
            Reason.MASK_NOT_CAUSAL,
        ),
        _example(
            f"""
{_MASK}
bias = torch.sqrt((torch.arange(6)[:, None] - torch.arange(6)).abs().to(q))
w = (q @ k.mT - bias).masked_fill(~mask, -1e9)
{_SOFTMAX}
""",
            Reason.MASK_NOT_CAUSAL,
        ),
        _example(f"{_MASK}\nw = (q @ k.mT).square().masked_fill(~mask, -1e9)\n{_SOFTMAX}", Reason.NO_INTERFACE),
        _example(
            f"{_MASK}\nw = (q @ k.mT).masked_fill(~mask, -1e9).softmax(-1)\nh = w.square() @ v", Reason.NO_INTERFACE
        ),
        _example(
            f"{_MASK}\nw = (q @ k.mT).masked_fill(~mask, -1e9)\nq = q * 2\n{_SOFTMAX}\nh = h + q", Reason.INPUT_WRITTEN
        ),
        _example(
            f"{_MASK}\nw = (q @ k.mT).masked_fill(~mask, -1e9)\nfor _ in range(1):\n    w = w * 1.0\n{_SOFTMAX}",
            Reason.USED_ELSEWHERE,
        ),
    )
