"""The three plans that a transformers configuration declares, and how their entries name modules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

Stage = tuple[list[str], list[str]]
KINDS = ("tp", "pp", "ep")


@dataclass(frozen=True)
class StylePlans:
    """What a configuration class says of its base model, by name from there; a number in a name is ``*``.

    Attributes:
        tp: how each module or parameter is split over ranks (``base_model_tp_plan``).
        pp: the base model's children in the order of the dataflow, each with the names of what goes in and comes out
            (``base_model_pp_plan``).
        ep: how whole experts are spread over ranks (``base_model_ep_plan``).
    """

    tp: Mapping[str, str] = field(default_factory=dict)
    pp: Mapping[str, Stage] = field(default_factory=dict)
    ep: Mapping[str, str] = field(default_factory=dict)

    def of(self, kind: str) -> Mapping[str, str] | Mapping[str, Stage]:
        """The plan of one of `KINDS`."""
        return self.pp if kind == "pp" else {"tp": self.tp, "ep": self.ep}[kind]


def attribute(kind: str) -> str:
    """The configuration's name for a kind of plan."""
    return f"base_model_{kind}_plan"


def generic(name: str) -> str:
    """A dotted name with ``*`` for numbers that stand alone; of two neighbours only the first, as transformers does."""
    return re.sub(r"\.\d+(\.|$)", r".*\1", name)


def style_of(name: str, plan: Mapping[str, str], *, parameter: bool) -> str | None:
    """The style that a plan has for a module, or for a parameter: its own, or else its module's."""
    found = plan.get(generic(name))
    if found is None and parameter and "." in name:
        found = plan.get(generic(name).rpartition(".")[0])
    return found


def under(prefix: str, plan: Mapping[str, str]) -> dict[str, str]:
    """A base model's plan as its wrapper names it."""
    return {f"{prefix}.{name}" if prefix else name: style for name, style in plan.items()}
