"""The plugin for pytest: a mark that names a model and what must be true of it, and its plan as a fixture.

    @pytest.mark.hfspeed_model("checkpoints/tiny", fused=["heads", "gated"], tp=[1, 2, 4])
    def test_served_fast(hfspeed_plan):
        assert hfspeed_plan.stages.count == 4
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hfspeed.plan import Plan

MARK = "hfspeed_model"


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line(
        "markers",
        f"{MARK}(model, **asked): the model that the fixture hfspeed_plan plans, proves and checks as "
        "hfspeed.testing.check_model does; a path is told from the root folder",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A marked test is checked even if it does not ask for the plan."""
    for item in items:
        names = getattr(item, "fixturenames", None)
        if item.get_closest_marker(MARK) is not None and names is not None and "hfspeed_plan" not in names:
            names.append("hfspeed_plan")


@pytest.fixture
def hfspeed_plan(request: pytest.FixtureRequest) -> Plan:
    """The proven plan of the model that the test is marked with; the test fails if it lost what the mark asks for."""
    __tracebackhide__ = True
    mark = request.node.get_closest_marker(MARK)
    if mark is None or len(mark.args) != 1:
        pytest.fail(f"hfspeed_plan needs a model: @pytest.mark.{MARK}('folder', fused=['heads'])", pytrace=False)
    from hfspeed.errors import HfspeedError
    from hfspeed.testing.model import Lost, check_model

    try:
        return check_model(_model(mark.args[0], request.config.rootpath), **mark.kwargs)
    except (Lost, HfspeedError) as error:
        pytest.fail(str(error), pytrace=False)


def _model(named: Any, root: Path) -> Any:
    """A path from the root folder, where there is one; anything else as it is."""
    if isinstance(named, str | Path) and (root / named).exists():
        return str(root / named)
    return named
