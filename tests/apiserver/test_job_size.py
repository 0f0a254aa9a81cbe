"""The server refuses Jobs with more pods than its operator allows."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from hekla.api.volcano.jobs import MAX_REPLICAS, MAX_REPLICAS_LOCAL
from hekla.apiserver.server import ApiServer, Config
from hekla.cli.main import main
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.errors import Invalid
from hekla.kube.resources import JOBS
from hekla.local import LocalConfig
from tests.api.test_volcano_jobs import job, task


async def test_job_beyond_the_limit_of_the_server_is_refused(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path / "data", max_pods_per_job=10)
    async with ApiServer(config) as server, Client(kubeconfig.load(server.kubeconfig)) as client:
        await client.create(JOBS, job(task(replicas=10), name="fits"), namespace="default")
        large = job(task(replicas=6), task(name="b", replicas=5), name="large")
        with pytest.raises(Invalid, match=r"more than 10 replicas in all.*--max-pods-per-job"):
            await client.create(JOBS, large, namespace="default")


@pytest.mark.parametrize(
    ("command", "want"), [("up", MAX_REPLICAS_LOCAL), ("admission", MAX_REPLICAS)]
)
def test_flag_has_the_default_of_the_rules(command: str, want: int) -> None:
    found = main.commands[command]
    (option,) = [each for each in found.params if each.name == "max_pods_per_job"]
    assert isinstance(option, click.Option)
    assert option.default == want


def test_single_machine_has_a_lower_limit(tmp_path: Path) -> None:
    assert LocalConfig(tmp_path).max_pods_per_job == MAX_REPLICAS_LOCAL < MAX_REPLICAS
