"""What a model hands its attention besides query, key and value: every keyword is consumed, or it is refused."""

from __future__ import annotations

from collections.abc import Mapping

from hfspeed.plan.ops import Attention
from hfspeed.refusal import Reason, Refusal, Refused

HARMLESS = frozenset({
    "position_ids", "cache_position", "use_cache", "past_key_values", "num_items_in_batch", "return_dict",
    "output_router_logits",
})  # fmt: skip
"""Keywords that models pass through to their attention and that no attention reads."""

FALSE = frozenset({"output_attentions", "output_hidden_states"})
"""Keywords that may be present as long as they ask for nothing."""


def consume(op: Attention, keywords: Mapping[str, object]) -> object | None:
    """Check every keyword against the plan and return the sinks (one value per head), if the plan has some.

    A value of ``None`` means that the model did not say; the plan then decides.

    Raises:
        Refused: a keyword differs from the plan, or nobody knows what it asks for (``KEYWORD_NOT_CONSUMED``).
    """
    planned = {"scaling": op.scale, "sliding_window": op.window, "softcap": op.softcap, "dropout": 0.0}
    for name, value in keywords.items():
        if value is None and (planned.get(name) is None or (op.by_mask and name == "sliding_window")):
            continue
        if name in planned and (_same(value, planned[name]) or (name == "scaling" and value is None)):
            continue
        if name in HARMLESS or (name in FALSE and value is False) or (name == "is_causal" and value is True):
            continue
        if name == "s_aux" and op.sinks is not None and value is not None:
            continue
        raise Refused(_refusal(op, name, value, planned))
    expected = {"sliding_window", "softcap"} - ({"sliding_window"} if op.by_mask else set())
    for name in () if op.measured else sorted(expected):
        if planned[name] is not None and name not in keywords:
            raise Refused(_refusal(op, name, None, planned))
    if op.sinks is not None and keywords.get("s_aux") is None:
        raise Refused(_refusal(op, "s_aux", None, planned))
    return keywords.get("s_aux")


def _same(value: object, planned: object) -> bool:
    return isinstance(value, int | float) and isinstance(planned, int | float) and value == planned


def _refusal(op: Attention, name: str, value: object, planned: Mapping[str, object]) -> Refusal:
    wanted = f"the plan says {planned[name]!r}" if name in planned else "no layer consumes it"
    shown = repr(value) if isinstance(value, int | float | str | bool | None) else f"a {type(value).__name__}"
    return Refusal(
        wanted="attention",
        reason=Reason.KEYWORD_NOT_CONSUMED,
        found=f"`{name}` is {shown}, but {wanted}",
        module=op.path,
        help=f"leave `{name}` out of the call, or give it one value that does not vary at run time",
    )
