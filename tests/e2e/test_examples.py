"""Every example ends as its table states, with real processes on one machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hekla.api.wellknown import BATCH_API, JobPhase
from hekla.kube import kubeconfig
from hekla.kube.resources import JOBS
from hekla.kube.sync_client import SyncClient

EXAMPLES = Path(__file__).parents[2] / "examples"
KUBECTL = Path(sys.executable).parent / "kubectl"
ROW = re.compile(r"^\| \[(\S+\.yaml)\]\(\S+\) \|.*\| (.+?) \|$", re.MULTILINE)
TABLE = dict(ROW.findall((EXAMPLES / "README.md").read_text()))
ENDS = {*JobPhase.FINISHED, JobPhase.ABORTED}
FAR_OFF_S = 600


def jobs_in(name: str) -> list[str]:
    documents = yaml.safe_load_all((EXAMPLES / name).read_text())
    return [
        one["metadata"]["name"]
        for one in documents
        if one and (one["apiVersion"], one["kind"]) == (BATCH_API, "Job")
    ]


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "state"
    own = os.geteuid() == 0 and shutil.which("ip") is not None
    network = "bridge" if own else "host"

    def hekla(*words: str) -> None:
        line = [sys.executable, "-m", "hekla.cli.main", words[0], "--data-dir", str(directory)]
        subprocess.run([*line, *words[1:]], check=True, capture_output=True, timeout=600)

    hekla("up", "--port", "0", "--detach", "--pod-network", network)
    yield directory
    hekla("down")


def test_the_table_names_every_example() -> None:
    assert set(TABLE) == {path.name for path in EXAMPLES.glob("*.yaml")}


@pytest.mark.slow
@pytest.mark.kubectl
def test_every_example_ends_as_listed(data_dir: Path) -> None:
    want: dict[str, str] = {}
    for name, ends_as in TABLE.items():
        line = [str(KUBECTL), "--kubeconfig", str(data_dir / "kubeconfig"), "apply", "-f"]
        done = subprocess.run(
            [*line, str(EXAMPLES / name)], capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0, f"{name}: {done.stderr}"
        if ends_as in ENDS:
            want |= {job: ends_as for job in jobs_in(name)}
    assert len(want) > 25
    phases: dict[str, str] = {}
    client = SyncClient(kubeconfig.load(data_dir / "kubeconfig"))
    with client, client.watch(JOBS, namespace="default", timeout_s=FAR_OFF_S) as events:
        for event in events:
            if event.type != "DELETED":  # an example shows how finished jobs expire
                state = (event.object.get("status") or {}).get("state") or {}
                phases[event.object["metadata"]["name"]] = state.get("phase", "")
            if {name: phases.get(name) for name in want} == want:
                return
    assert {name: phases.get(name) for name in want} == want
