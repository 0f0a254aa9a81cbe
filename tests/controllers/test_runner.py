"""The selection of controllers."""

import pytest

from hekla.controllers.runner import BUILDERS, selected


def test_controllers_are_selected_by_name() -> None:
    assert list(BUILDERS) == selected(["*"]) == selected([])
    assert "gc-controller" not in selected(["*", "-gc-controller"])
    assert selected(["+job-controller"]) == ["job-controller"]
    with pytest.raises(ValueError, match="no controller 'jobs'"):
        selected(["jobs"])
