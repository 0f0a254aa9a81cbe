"""The examples of the guides work, and the guides name everything they must."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hekla.api import wellknown
from hekla.controllers.job.plugins.plugin import JobPlugin, PodContext, known_plugins

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")


def python_in(name: str) -> dict[str, Any]:
    """Run the Python code of a guide; return its names."""
    names: dict[str, Any] = {}
    blocks = BLOCK.findall((DOCS / "guides" / name).read_text())
    assert blocks, f"{name} shows no Python"
    for block in blocks:
        exec(compile(block, name, "exec"), names)
    return names


def test_the_scheduler_plugin_of_the_guide_does_what_it_says() -> None:
    assert "CoolNodes" in python_in("write-a-plugin.md")


def test_the_job_plugin_of_the_guide_does_what_it_says() -> None:
    plugin: JobPlugin = python_in("job-plugins.md")["Greeting"](["--text=good morning"])
    pod: dict[str, Any] = {"spec": {"containers": [{"name": "a"}]}}
    plugin.on_pod(pod, PodContext({}, {}, 3))
    assert pod["spec"]["containers"][0]["env"] == [{"name": "GREETING", "value": "good morning, 3"}]


def test_every_job_plugin_and_every_argument_is_in_the_guide() -> None:
    text = (DOCS / "guides" / "job-plugins.md").read_text()
    for name in wellknown.JOB_PLUGINS:
        assert f"| `{name}` |" in text, name
        plugin = known_plugins()[name]
        for attribute, kind in plugin.__annotations__.items():
            if kind in ("str", "int", "bool", str, int, bool):
                flag = plugin.flag_names.get(attribute, attribute.replace("_", "-"))
                assert f"`{flag}`" in text, f"{name} --{flag}"


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in LINK.findall(path.read_text()):
        assert (path.parent / target).exists(), f"{path.name}: {target}"
