"""What an author's class does when it generates, and vLLM does not: it makes inputs of its own from the tokens."""

from __future__ import annotations

import copy
import inspect
from typing import Any, Final

import torch

from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.mismatch import BOUNDS, arithmetic
from hfspeed.planner.prompts import prompt
from hfspeed.planner.study import TOKENS, Study
from hfspeed.planner.witness import distance
from hfspeed.reference.asking import ids_name, scores
from hfspeed.refusal import Place, Reason, Refusal

PREPARES: Final = "prepare_inputs_for_generation"
MIXIN: Final = "transformers.generation."
"""Where what every class inherits is written."""


def prepares(small: Study) -> Refusal | None:
    """A refusal if the inputs that the author's class makes for `generate` are answered otherwise than a plain prompt.

    What does not run with the transformers that is there says nothing.
    """
    if (own := _own(small.model, PREPARES)) is None:
        return None
    plain = prompt(small.fresh, TOKENS)
    with torch.no_grad(), arithmetic(torch.float64):
        try:
            model = copy.deepcopy(small.fresh)
            wanted, given = scores(copy.deepcopy(small.fresh)(**plain)), _prepared(model, plain)
            found = scores(model(**given))
            wanted = wanted[:, -found.shape[1] :]  # it may ask for the last tokens alone
        except AUTHOR_ERRORS:
            return None
    if (apart := distance(wanted, found)) <= BOUNDS[torch.float64]:
        return None
    told = f"`{PREPARES}` gives the forward other inputs than tokens and positions: answers differ by {apart:.1e}"
    help_ = "let the forward make what it needs from tokens and positions: vLLM calls nothing else"
    return Refusal("model", Reason.NUMBERS_DIFFER, told, type(small.model).__name__, _place(own), help=help_)


def own_generation(model: Any) -> tuple[Refusal, ...]:
    """Told, and no more: the class generates in a way of its own, and vLLM in its own."""
    if (own := _own(model, "generate")) is None:
        return ()
    found = "it has a `generate` of its own, which vLLM does not call: tokens are chosen as a request asks"
    help_ = "ask for what it does by sampling parameters, or a logits processor of vLLM's"
    return (Refusal("generate", Reason.CANNOT_RUN, found, type(model).__name__, _place(own), help=help_),)


def _own(model: Any, name: str) -> Any:
    """The method, if it is not that of transformers' mixin."""
    found = getattr(type(model), name, None)
    return None if found is None or found.__module__.startswith(MIXIN) else found


def _place(method: Any) -> Place | None:
    return Place.of(getattr(inspect.unwrap(method), "__code__", None))


def _prepared(model: Any, plain: dict[str, Any]) -> dict[str, Any]:
    """What the class makes of a whole prompt, without a cache."""
    prepare, ids = getattr(model, PREPARES), plain[ids_name(model)]
    known = {"attention_mask": torch.ones_like(ids), "use_cache": False, "is_first_iteration": True}
    takes = inspect.signature(prepare).parameters
    every = any(entry.kind is inspect.Parameter.VAR_KEYWORD for entry in takes.values())
    return prepare(ids, **{name: value for name, value in known.items() if every or name in takes})
