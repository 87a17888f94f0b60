"""No keyword of an attention call is dropped: it is consumed, harmless, or refused."""

from __future__ import annotations

import pytest

from hfspeed.plan import Attention
from hfspeed.plan.keywords import consume
from hfspeed.refusal import Reason, Refused

PLAIN = Attention("m.attn", 4, 2, 8, 8, 0.25)
FULL = Attention("m.attn", 4, 2, 8, 8, 0.25, window=8, softcap=30.0, sinks="sinks")
GIVEN = {"scaling": 0.25, "sliding_window": 8, "softcap": 30.0, "s_aux": [0.0] * 4}


@pytest.mark.parametrize(
    "keywords",
    [
        {},
        {"scaling": 0.25, "dropout": 0.0, "sliding_window": None, "softcap": None},
        {"scaling": None, "position_ids": object(), "use_cache": False, "is_causal": True},
        {"output_attentions": False, "cache_position": None, "anything": None, "is_causal": None, "s_aux": None},
    ],
)
def test_what_a_plain_attention_takes(keywords):
    assert consume(PLAIN, keywords) is None


def test_all_of_them():
    assert consume(FULL, GIVEN) is GIVEN["s_aux"]


@pytest.mark.parametrize(
    ("op", "keywords", "told"),
    [
        (PLAIN, {"scaling": 0.5}, "`scaling` is 0.5, but the plan says 0.25"),
        (PLAIN, {"dropout": 0.1}, "`dropout` is 0.1, but the plan says 0.0"),
        (PLAIN, {"sliding_window": 8}, "`sliding_window` is 8, but the plan says None"),
        (PLAIN, {"is_causal": False}, "`is_causal` is False, but no layer consumes it"),
        (PLAIN, {"output_attentions": True}, "`output_attentions` is True"),
        (PLAIN, {"position_bias": [1.0]}, "`position_bias` is a list, but no layer consumes it"),
        (PLAIN, {"s_aux": [1.0]}, "`s_aux` is a list"),
        (FULL, GIVEN | {"sliding_window": None}, "`sliding_window` is None, but the plan says 8"),
        (FULL, {k: v for k, v in GIVEN.items() if k != "softcap"}, "`softcap` is None, but the plan says 30.0"),
        (FULL, {k: v for k, v in GIVEN.items() if k != "s_aux"}, "`s_aux` is None, but no layer consumes it"),
    ],
)
def test_what_is_refused(op, keywords, told):
    with pytest.raises(Refused) as caught:
        consume(op, keywords)
    assert told in caught.value.refusal.found
    assert caught.value.refusal.reason is Reason.KEYWORD_NOT_CONSUMED
    assert caught.value.refusal.module == "m.attn"
