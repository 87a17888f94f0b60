"""The plan and the emitted module for a model that is about to be served, from the cache where it is known."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

from hfspeed.emit import cache_root, emitted
from hfspeed.plan import Plan
from hfspeed.planner.build import build
from hfspeed.planner.cache import PlanCache, key_for
from hfspeed.planner.decide import decide
from hfspeed.planner.load import Subject


def plan_for(config: Any, model_class: type[Any]) -> tuple[Plan, ModuleType]:
    """The proven plan of ``model_class`` under ``config``, and its importable classes.

    Raises:
        RefusedError: the model cannot be served correctly.
        CacheError: the cache folder cannot be written.
    """
    name = getattr(config, "_name_or_path", "") or model_class.__name__
    return planned(Subject(name, None, config, model_class, Path(inspect.getfile(model_class))))


def planned(subject: Subject) -> tuple[Plan, ModuleType]:
    """As `plan_for`, for a loaded subject."""
    model = build(subject.model_class, subject.config)
    cache, key = PlanCache(cache_root() / "plans"), key_for(subject, model)
    plan = cache.get(key)
    if plan is None:
        plan = decide(subject, model)
        cache.put(key, plan)
    return plan, emitted(plan)
