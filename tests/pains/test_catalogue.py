"""The catalogue, the scenarios and the guide agree."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable

import pytest
from tools.pains import PAGE, render

from tests.pains.catalogue import PAINS, REPOSITORIES, Pain

SCENARIO = re.compile(r"test_\d\d_")


def _tests(package: str) -> list[tuple[str, Callable[..., object]]]:
    path = list(importlib.import_module(package).__path__)
    return [
        (name, value)
        for found in pkgutil.iter_modules(path)
        if found.name.startswith("test_")
        for name, value in vars(importlib.import_module(f"{package}.{found.name}")).items()
        if name.startswith("test_") and inspect.isfunction(value)
    ]


def test_each_pain_has_one_scenario() -> None:
    made = sorted(name for name, _ in _tests("tests.pains") if SCENARIO.match(name))
    assert made == [f"test_{number:02}_{pain.test}" for number, pain in enumerate(PAINS, 1)]
    assert len(made) == 25


@pytest.mark.parametrize("pain", PAINS, ids=lambda pain: pain.test)
def test_a_scenario_cites_the_same_issues(pain: Pain) -> None:
    (scenario,) = (test for name, test in _tests("tests.pains") if name.endswith(f"_{pain.test}"))
    assert (scenario.__doc__ or "").startswith(pain.cited), pain.cited
    assert "site" in _fixtures(scenario), "it runs on one server only"
    assert pain.issues.keys() <= REPOSITORIES.keys()


def _fixtures(scenario: Callable[..., object]) -> set[str]:
    """The arguments of a scenario; `place` is made from `site`, which has both servers."""
    named = set(inspect.signature(scenario).parameters)
    return named | {"site"} if "place" in named else named


def test_what_is_said_to_be_reproduced_has_a_test() -> None:
    said = {pain.reproduced for pain in PAINS if pain.reproduced}
    made = {name for name, _ in _tests("tests.fidelity")}
    assert said <= made


def test_the_guide_is_current() -> None:
    page = PAGE.read_text()
    assert page == render(page), "run: python -m tools.pains"
