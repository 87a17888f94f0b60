"""A module that computes attention by hand gets paged attention, if running it shows what it computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from hfspeed.example import Example
from hfspeed.graph.record import Call, Recording
from hfspeed.pattern.attend_call import widened
from hfspeed.pattern.attend_edit import AttentionEdit, edit, where
from hfspeed.pattern.canonical import canonical
from hfspeed.pattern.measure import measure
from hfspeed.pattern.reach import reach
from hfspeed.pattern.repeats import repeats
from hfspeed.pattern.scores import Written, refused, written
from hfspeed.refusal import Reason, Refusal, Refused

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


def by_hand(call: Call, tokens: int, long: Call | None = None, many: int = 0) -> AttentionEdit | None:
    """What must change so that ``call`` attends through the interface, which its graph does from now on.

    Args:
        call: recorded with ``tokens`` tokens.
        tokens: how many.
        long: the same module, recorded with ``many`` tokens.
        many: so many that a longer prompt could show nothing new.

    Returns:
        ``None`` if it computes no attention.

    Raises:
        Refused: what it computes is no attention that can be served, or its source cannot be changed.
    """
    inner = written(call, tokens)
    if inner is None:
        return None
    at = where(inner)
    one = inner if at.frame is None else widened(inner, at.frame, tokens)
    found = measure(one)
    if long is not None:
        found = found.within(reach(inner, _again(inner, long, many), many, found))
    times = repeats(one)
    change = edit(one, at, inner, grouped=times > 1)
    canonical(one, found, times)
    return change


def _again(one: Written, long: Call, many: int) -> Written:
    found = written(long, many)
    if found is None:
        raise refused(one.call, Reason.VALUE_VARIES, "long prompts are attended to otherwise", one.softmax)
    return found


def all_by_hand(
    recording: Recording, tokens: int, again: Callable[[], Recording], context: int, longest: int
) -> tuple[dict[str, AttentionEdit], tuple[Refusal, ...]]:
    """`by_hand` for every module that was called: edits by path, and what was refused.

    Args:
        recording: a short prompt.
        tokens: its length.
        again: records a prompt as long as the model takes, or of ``longest`` tokens.
        context: how long prompts may be.
        longest: how long they may be if masks are to be known as a whole.
    """
    edits: dict[str, AttentionEdit] = {}
    refusals: list[Refusal] = []
    long: Recording | None = None
    for path, call in recording.calls.items():
        try:
            if written(call, tokens) is None:
                continue
            if context > longest:
                found = f"what is seen in prompts of {context} tokens cannot be checked; up to {longest} can"
                raise refused(call, Reason.MASK_NOT_CAUSAL, found)
            long = long or again()
            change = by_hand(call, tokens, long.calls.get(path), context)
        except Refused as no:
            refusals.append(no.refusal)
            continue
        if change is not None:
            edits[path] = change
    return edits, tuple(refusals)
