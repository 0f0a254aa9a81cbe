"""The public names of hekla.scheduler and hekla.testing are documented with examples that run."""

from __future__ import annotations

import doctest
import inspect
import sys

import pytest

import hekla.scheduler
import hekla.testing

NAMES = [(module, name) for module in (hekla.scheduler, hekla.testing) for name in module.__all__]
VALUES = {"PERMIT", "REJECT"}
"""Constants: the docstring of their type has the example."""


@pytest.mark.parametrize(("module", "name"), NAMES, ids=[name for _, name in NAMES])
def test_a_public_name_has_an_example_that_runs(module: object, name: str) -> None:
    value = getattr(module, name)
    target = type(value) if name in VALUES else value
    text = inspect.getdoc(target) or ""
    assert ">>>" in text, f"{name} has no example"
    names = vars(sys.modules[target.__module__])
    test = doctest.DocTestParser().get_doctest(text, dict(names), name, None, 0)
    result = doctest.DocTestRunner().run(test)
    assert (result.failed, result.attempted > 0) == (0, True)
