"""The examples are accepted by the server and listed."""

from pathlib import Path

import pytest
import yaml

from hekla.api import wellknown
from hekla.controllers.job.plugins import known_plugins
from hekla.kube.resources import CATALOGUE
from hekla.units.objects import Object

from .cluster import Cluster

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(EXAMPLES.glob("*.yaml"))


def documents(path: Path) -> list[Object]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


async def test_every_example_is_accepted_by_the_server(cluster: Cluster) -> None:
    await cluster.stop()
    for path in FILES:
        for document in documents(path):
            (kind,) = [
                each
                for each in CATALOGUE
                if (each.api_version, each.kind) == (document["apiVersion"], document["kind"])
            ]
            await cluster.client.create(kind, document)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_example_has_a_heading_and_is_listed(path: Path) -> None:
    assert path.read_text().startswith("# ")
    assert f"({path.name})" in (EXAMPLES / "README.md").read_text()


def test_every_policy_and_plugin_has_an_example() -> None:
    text = "\n".join(path.read_text() for path in FILES)
    for event in wellknown.JobEvent.IN_POLICIES - {"*"}:
        assert f"event: {event}" in text
    for action in wellknown.Action.IN_POLICIES:
        assert f"action: {action}" in text
    for plugin in wellknown.JOB_PLUGINS:
        assert f"{plugin}: [" in text
        assert plugin in known_plugins()
