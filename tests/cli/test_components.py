"""`hekla scheduler` and `hekla controllers` as processes: flags, probes, lease, clean stop."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tools.kube.processes import free_port
from tools.waiting import PATIENCE_S, until

from hekla.cli import component_commands
from hekla.cli.main import main
from hekla.kube import kubeconfig
from hekla.kube.resources import JOBS, LEASES, NODES, PODS
from hekla.kube.sync_client import SyncClient
from tests.realkube.backends import embedded_server

from .conftest import job


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Path]:
    """A separate server: a scheduler on the shared one would see jobs of other tests."""
    with embedded_server(tmp_path / "server") as config:
        yield config


@pytest.fixture
def start(cluster: Path, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(command: str, *flags: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "hekla.cli.main", command, "--kubeconfig", str(cluster)]
        with (tmp_path / f"{command}.log").open("ab") as output:
            started.append(subprocess.Popen([*words, *flags], stdout=output, stderr=output))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def fetch(address: str) -> str:
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def test_components_serve_a_cluster_and_release_their_leases(
    cluster: Path, start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    metrics, health = free_port(), free_port()
    scheduler = start(
        "scheduler",
        "--leader-elect=true",
        "--leader-elect-resource-namespace=default",
        "--enable-metrics",
        f"--listen-address=127.0.0.1:{metrics}",
        "--enable-healthz=true",
        f"--healthz-address=127.0.0.1:{health}",
        f"--decision-log={tmp_path / 'decisions'}",
    )
    controllers = start("controllers", "--leader-elect", "--worker-threads=4")
    with SyncClient(kubeconfig.load(cluster)) as client:
        client.create(NODES, {"metadata": {"name": "n1"}})
        amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
        client.patch_status(NODES, "n1", {"allocatable": amounts, "capacity": amounts})
        client.create(JOBS, job("train", replicas=2), namespace="default")
        until(lambda: sum(1 for p in client.list(PODS) if p["spec"].get("nodeName")) == 2)
        assert fetch(f"http://127.0.0.1:{health}/readyz") == "ok\n"
        assert fetch(f"http://127.0.0.1:{health}/healthz") == "ok\n"
        assert fetch(f"http://127.0.0.1:{health}/metrics") == ""
        assert "\nhekla_leader 1.0\n" in fetch(f"http://127.0.0.1:{metrics}/metrics")
        client.create(JOBS, job("large", replicas=50), namespace="default")
        page = f"http://127.0.0.1:{metrics}/verdicts"
        told = until(lambda: json.loads(fetch(page) or '{"items": []}')["items"])
        assert told[0]["job"].startswith("default/large-")
        assert told[0]["gate"]
        assert told[0]["message"] in told[0]["text"]
        holders = {lease["metadata"]["name"]: lease["spec"] for lease in client.list(LEASES)}
        assert all(holders[name]["holderIdentity"] for name in ("volcano", "vc-controller-manager"))
        for process in (scheduler, controllers):
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        for lease in client.list(LEASES):
            assert lease["spec"]["holderIdentity"] == "", lease["metadata"]["name"]
    said = CliRunner().invoke(main, ["replay", str(tmp_path / "decisions")])
    assert said.exit_code == 0, said.output


def test_standby_replica_is_ready_and_takes_over(
    cluster: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    health = free_port()
    elect = ["--leader-elect", "--leader-elect-resource-namespace=default"]
    first = start("scheduler", *elect)
    with SyncClient(kubeconfig.load(cluster)) as client:

        def holder() -> str:
            found = client.find(LEASES, "volcano", namespace="default")
            return str(((found or {}).get("spec") or {}).get("holderIdentity") or "")

        leader = until(holder)
        start("scheduler", *elect, "--enable-healthz", f"--healthz-address=127.0.0.1:{health}")
        until(lambda: fetch(f"http://127.0.0.1:{health}/readyz") == "ok\n")
        assert holder() == leader
        first.terminate()
        until(lambda: holder() not in ("", leader))


REFUSALS = {
    "no label": (["scheduler", "--node-selector=red"], "'red' is not KEY:VALUE"),
    "no address": (["scheduler", "--enable-metrics", "--listen-address=x"], "is not HOST:PORT"),
    "no time": (["scheduler", "--leader-elect-lease-duration=soon"], "soon"),
    "lease too short": (
        ["scheduler", "--leader-elect", "--leader-elect-lease-duration=1s"],
        "lease_duration_s > renew_deadline_s",
    ),
    "key without certificate": (
        ["scheduler", "--tls-private-key-file=x"],
        "must be given together",
    ),
    "no controller": (["controllers", "--controllers=jobs"], "no controller 'jobs'"),
    "no such flag": (["scheduler", "--sheduler-name=x"], "No such option"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_invalid_flags_are_rejected(case: str, cluster: Path) -> None:
    words, want = REFUSALS[case]
    said = CliRunner().invoke(main, [*words, "--kubeconfig", str(cluster)])
    assert said.exit_code != 0
    assert want in said.output


@pytest.mark.parametrize("words", [["-v=4"], ["-v", "4"], ["-v4"], ["--v=4"]])
def test_log_level_is_written_as_in_go(words: list[str]) -> None:
    for command in (component_commands.scheduler, component_commands.controllers):
        assert command.make_context(command.name, [*words]).params["verbosity"] == 4
    said = CliRunner().invoke(main, ["scheduler", "-v=much"])
    assert (said.exit_code, "'much' is not a valid integer" in said.output) == (2, True)


@pytest.mark.parametrize("flag", [*component_commands.UNSUPPORTED, "controllers"])
def test_unsupported_volcano_flags_are_rejected_with_the_reason(flag: str) -> None:
    if flag == "controllers":
        for name, reason in component_commands.UNSUPPORTED_BY_CONTROLLERS.items():
            said = CliRunner().invoke(main, ["controllers", f"--{name}=1"])
            assert f"--{name} is not supported: {reason}" in re.sub(r"\s+", " ", said.output)
        return
    for words in ([f"--{flag}=1"], [f"--{flag}"]):
        said = CliRunner().invoke(main, ["scheduler", *words])
        assert said.exit_code == 2
        assert f"--{flag} is not supported: {component_commands.UNSUPPORTED[flag]}" in said.output
