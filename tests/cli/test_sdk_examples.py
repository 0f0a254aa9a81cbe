"""Every public name of the SDK has a docstring with an example that is valid Python."""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from typing import Any

import pytest

import hekla
import hekla.sdk

PUBLIC = [name for name in hekla.__all__ if name != "__version__"]
PURE = ["Explanation", "Job", "LogLine", "Queue", "Task"]
"""Names whose example needs no cluster."""


def example(name: str) -> str:
    """Return the indented lines of a docstring, from the source: Python 3.13 dedents `__doc__`."""
    (definition,) = ast.parse(inspect.getsource(getattr(hekla, name))).body
    assert isinstance(definition, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    text = ast.get_docstring(definition, clean=False) or ""
    lines = [line for line in text.splitlines() if line.startswith(" " * 8)]
    assert lines, f"{name} has no example"
    return textwrap.dedent("\n".join(lines))


def test_hekla_exports_the_names_of_the_sdk() -> None:
    assert set(hekla.sdk.__all__) == set(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_example_uses_its_name_and_only_known_names(name: str) -> None:
    compile(example(name), name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    nodes = [node for node in ast.walk(ast.parse(example(name))) if isinstance(node, ast.Name)]
    stored = {node.id for node in nodes if isinstance(node.ctx, ast.Store)}
    used = {node.id for node in nodes} - stored
    assert name in used
    assert used <= {*PUBLIC, "error", "job", *dir(builtins)}


@pytest.mark.parametrize("name", PURE)
def test_example_without_a_cluster_runs(name: str) -> None:
    names: dict[str, Any] = {each: getattr(hekla, each) for each in PUBLIC}
    made = eval(compile(example(name).strip(), name, "eval"), names)
    assert isinstance(made, getattr(hekla, name))
    if hasattr(made, "manifest"):
        assert made.manifest()


@pytest.mark.parametrize(
    "name",
    ["JobHandle", "AsyncJobHandle", "FunctionJob", "AsyncFunctionJob", "Executor", "JobFuture"],
)
def test_every_method_of_a_handle_has_a_docstring(name: str) -> None:
    handle = getattr(hekla, name)
    public = [each for each in vars(handle) if not each.startswith("_")]
    assert [each for each in public if not inspect.getdoc(getattr(handle, each))] == []
