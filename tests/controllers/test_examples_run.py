"""Every example job reaches the end that the table promises: real server, scheduler and agent."""

import asyncio
import re
from pathlib import Path

import pytest
import yaml

from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.resources import JOBS
from hekla.local import LocalConfig, cluster

EXAMPLES = Path(__file__).parents[2] / "examples"
ROW = re.compile(r"\| \[(.+?)\]\(.+?\) \| .* \| (Completed|Failed|Aborted|Terminated) \|")
PROMISED = dict(ROW.findall((EXAMPLES / "README.md").read_text()))
PATIENCE_S = 150.0
POLL_S = 0.2


def forget_first_tries() -> None:
    """Examples that fail once leave a mark behind, which a run that was cut off did not remove."""
    for path in EXAMPLES.glob("policy-*.yaml"):
        for mark in re.findall(r"touch (/tmp/hekla-[a-z-]+)", path.read_text()):
            Path(mark).unlink(missing_ok=True)


@pytest.mark.slow
async def test_every_example_job_ends_as_promised(tmp_path: Path) -> None:
    assert len(PROMISED) > 25
    forget_first_tries()
    async with (
        cluster(LocalConfig(data_dir=tmp_path / "data")) as server,
        Client(kubeconfig.load(server.kubeconfig), component="test") as client,
    ):
        want_phases = {}
        for name, phase in PROMISED.items():
            body = yaml.safe_load((EXAMPLES / name).read_text())
            body["spec"].pop("ttlSecondsAfterFinished", None)
            await client.create(JOBS, body)
            want_phases[body["metadata"]["name"]] = phase
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            found = {
                job["metadata"]["name"]: job["status"].get("state", {}).get("phase")
                for job in (await client.list(JOBS)).items
                if "status" in job
            }
            if found == want_phases or asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(POLL_S)
        assert want_phases == found
