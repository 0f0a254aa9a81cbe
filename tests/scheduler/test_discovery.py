"""Custom plugins are discovered, and broken ones are left out."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from hekla.scheduler.plugins.discovery import discover
from hekla.testing import cluster, gang, node

LAST = '''
from hekla.scheduler import Plugin

class Last(Plugin, name="last"):
    """Prefer the last node."""

    weight: float = 1.0

    def node_order(self, task, nodes):
        return self.weight * __import__("numpy").arange(len(nodes.all), dtype=float)
'''


def test_a_file_in_the_plugins_directory_is_a_plugin(tmp_path: Path) -> None:
    (tmp_path / "last.py").write_text(LAST)
    conf = 'actions: "allocate"\ntiers:\n- plugins: [{name: gang}, {name: last}]\n'
    world = cluster(
        [node("n1"), node("n2")], [gang("a", cpu=1)], conf=conf, registry=discover(tmp_path)
    )
    assert world.run().binds == {"a-0": "n2"}


def test_a_broken_file_is_reported_and_the_others_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "last.py").write_text(LAST)
    with caplog.at_level(logging.ERROR):
        registry = discover(tmp_path)
    assert registry.get("last") is not None
    assert "broken.py cannot be loaded" in caplog.text
    assert registry.left_out == {str(tmp_path / "broken.py"): "ZeroDivisionError: division by zero"}
    assert registry.custom == {"last": str(tmp_path / "last.py")}
