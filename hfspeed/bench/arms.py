"""The arms: ways to serve the same model, each told apart by the class that has to serve it."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, field
from unittest.mock import patch

from hfspeed.errors import UsageError
from hfspeed.planner.switches import VARIABLE, switched_off

NATIVE = "native"
"""The arm that every other one is compared with."""

_BACKEND = "vllm.model_executor.models.transformers."


@dataclass(frozen=True)
class Arm:
    """One way to serve a model.

    Attributes:
        name: how it is called, in tables and on the command line.
        about: one phrase for people.
        model_impl: vLLM's setting.
        environ: what its process finds in the environment.
        serves: how the full name of the served class begins.
        never: how it must not begin.
    """

    name: str
    about: str
    model_impl: str
    serves: str
    environ: dict[str, str] = field(default_factory=dict)
    never: str = " "

    def is_served_by(self, full_name: str) -> bool:
        """Whether a class of this name is the one that this arm is about."""
        return full_name.startswith(self.serves) and not full_name.startswith(self.never)


ARMS = (
    Arm(NATIVE, "vLLM's own model", "vllm", "vllm.model_executor.models.", {"HFSPEED": "off"}, never=_BACKEND),
    Arm("hfspeed", "the author's model by hfspeed", "transformers", "hfspeed.vllm.models."),
    Arm("unfused", "hfspeed with every fusion off", "transformers", "hfspeed.vllm.models.", {VARIABLE: "none"}),
    Arm("peer", "vLLM's own transformers backend", "transformers", _BACKEND, {"HFSPEED": "off"}),
)
"""In the order in which they take turns."""

WITHOUT = "hfspeed-"
"""How the name of an arm begins that leaves something out, by its name: ``hfspeed-rotary``."""
REGIONS = "regions"
"""What can be left out besides fusions: equal layers compiled once."""


def chosen(names: str | None) -> tuple[Arm, ...]:
    """The arms of a list of names with commas, in their own order; all of them without a list.

    ``hfspeed-NAME`` is hfspeed without the fusion of that name, ``hfspeed-regions`` with each layer compiled for
    itself; several can be left out at once: ``hfspeed-rotary-positions``.

    Raises:
        UsageError: a name is none of an arm, or leaves out what does not exist.
    """
    if names is None:
        return ARMS
    known = {arm.name: arm for arm in ARMS}
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if not wanted:
        raise UsageError(f"--arms names no arm; write some of {', '.join(known)}, separated by commas")
    less = {name: _without(name) for name in wanted if name.startswith(WITHOUT)}
    for name in wanted:
        if name not in known and name not in less:
            near = difflib.get_close_matches(name, known, n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(
                f"--arms takes {', '.join(known)} or {WITHOUT}FUSION, separated by commas; found {name!r}{meant}"
            )
    return (*(arm for arm in ARMS if arm.name in wanted), *less.values())


def _without(name: str) -> Arm:
    """The arm of hfspeed less what the name says."""
    parts = name.removeprefix(WITHOUT).split("-")
    fusions = ",".join(f"-{part}" for part in parts if part != REGIONS)
    environ = {VARIABLE: fusions} if fusions else {}
    if REGIONS in parts:
        environ["HFSPEED_REGIONS"] = "off"
    with patch.dict(os.environ, environ):
        switched_off()  # a fusion that does not exist is told now, not by an arm that has failed
    return Arm(name, f"hfspeed without {' and '.join(parts)}", "transformers", "hfspeed.vllm.models.", environ)
