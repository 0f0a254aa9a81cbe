"""Measured use: CPU time and peak memory of a pod, from its cgroups, only where they are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from hekla.api.history import PodUsage, reported_usage
from hekla.nodeagent.cgroups import Cgroups, Group, Limits
from hekla.nodeagent.lifecycle import (
    ContainerRecord,
    ContainerRun,
    PodRecord,
    pod_usage,
    record_exit,
)
from hekla.nodeagent.status import pod_status
from hekla.units.objects import Object
from tests.nodeagent.conftest import Machine

POD: Object = {
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {
        "initContainers": [{"name": "setup", "image": "host"}],
        "containers": [{"name": "main", "image": "host"}, {"name": "side", "image": "host"}],
    },
}


def ended(*usages: PodUsage | None) -> ContainerRecord:
    known = ContainerRecord()
    for number, usage in enumerate(usages):
        known.current = ContainerRun(number, 0.0, finished_at=1.0, exit_code=0)
        record_exit(known, 1.0, usage)
    return known


def test_use_of_a_pod_sums_cpu_over_runs_and_peaks_over_containers_that_run_together() -> None:
    record = PodRecord(0.0)
    record.containers = {
        "setup": ended(PodUsage(1.0, 500)),
        "main": ended(PodUsage(2.0, 100), PodUsage(3.0, 300)),
        "side": ended(PodUsage(0.5, 50)),
    }
    assert pod_usage(POD, record) == PodUsage(6.5, 500)
    record.containers["setup"] = ended(PodUsage(1.0, 10))
    assert pod_usage(POD, record) == PodUsage(6.5, 350)


def test_pod_with_a_run_that_was_not_measured_is_unmeasured() -> None:
    record = PodRecord(0.0)
    record.containers = {"main": ended(PodUsage(2.0, 100), None)}
    assert pod_usage(POD, record) is None
    assert pod_usage(POD, PodRecord(0.0)) is None


def test_only_an_ended_pod_reports_use_and_replaces_an_older_report() -> None:
    record = PodRecord(0.0)
    record.containers = {"main": ended(PodUsage(2.0, 100))}
    forged = {"type": "hekla.io/ResourceUsage", "status": "True", "message": "{}"}
    pod = {**POD, "status": {"conditions": [forged]}}
    for phase, want in (("Running", None), ("Succeeded", PodUsage(2.0, 100))):
        status = pod_status(pod, record, phase=phase, pod_ip="", host_ip="", now=5.0)
        assert reported_usage({"status": status}) == want
        kinds = [each["type"] for each in status["conditions"]]
        assert kinds.count("hekla.io/ResourceUsage") == (want is not None)


@pytest.mark.parametrize(
    "files",
    [
        {"cpu.stat": "usage_usec 2500000\nuser_usec 1\n", "memory.peak": "4096\n"},
        {"cpuacct.usage": "2500000000\n", "memory.max_usage_in_bytes": "4096\n"},
    ],
    ids=["v2", "v1"],
)
def test_both_versions_of_cgroups_are_read(tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert Group({"x": tmp_path}).usage() == PodUsage(2.5, 4096)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"cpu.stat": "usage_usec 1\n"},  # Linux before 5.19 has no memory.peak
        {"cpu.stat": "nr_periods 0\n", "memory.peak": "4096\n"},
        {"cpu.stat": "usage_usec many\n", "memory.peak": "4096\n"},
    ],
    ids=["none", "no memory", "no cpu", "nonsense"],
)
def test_what_the_kernel_does_not_report_is_unmeasured(
    tmp_path: Path, files: dict[str, str]
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert Group({"x": tmp_path}).usage() is None


async def test_pod_reports_what_its_processes_used(machine: Machine) -> None:
    group = Cgroups().make("hekla-usage-probe", Limits())
    measures = group is not None and group.usage() is not None
    if group is not None:
        group.remove()
    burn = "x = bytearray(30_000_000)\nimport time\nwhile time.process_time() < 0.2: pass"
    await machine.run_pod("burner", "python3", "-c", burn)
    pod = await machine.ended("burner")
    assert pod["status"]["phase"] == "Succeeded"
    usage = reported_usage(pod)
    if not measures:
        assert usage is None
        return
    assert usage is not None
    assert usage.cpu_seconds >= 0.2
    assert usage.memory_peak_bytes >= 30_000_000
