"""What `hekla run` prints about a failed job."""

from __future__ import annotations

from typing import Any

from hekla.cli.failure_report import MAX_SHOWN, FailedContainer, failed_containers, report

JOB = {"metadata": {"name": "train"}, "status": {"state": {"phase": "Failed"}}}


def ended(name: str, code: int, reason: str = "Error") -> dict[str, Any]:
    return {"name": name, "state": {"terminated": {"exitCode": code, "reason": reason}}}


def failed_pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "train-w-0", "namespace": "ml"}, "status": status}


def test_each_container_that_failed_is_named_with_its_exit_code() -> None:
    pod = failed_pod(
        initContainerStatuses=[ended("setup", 0)],
        containerStatuses=[ended("main", 5), ended("helper", 137, "OOMKilled")],
    )
    assert [str(one) for one in failed_containers(pod)] == [
        "pod train-w-0: container main exited with code 5",
        "pod train-w-0: container helper exited with code 137 (OOMKilled)",
    ]


def test_a_pod_that_failed_without_a_container_shows_its_reason() -> None:
    (one,) = failed_containers(failed_pod(reason="Evicted", message="the node is full"))
    assert str(one) == "pod train-w-0 failed (Evicted: the node is full)"


def test_the_report_is_bounded_and_ends_with_the_command_for_more() -> None:
    many = [FailedContainer(f"p{n}", "ml", "main", 1) for n in range(MAX_SHOWN + 3)]
    lines = list(report(JOB, "Failed", many, "`hekla explain train`"))
    assert lines[0] == "job train ended as Failed"
    assert lines[-2:] == ["  … and 3 more", "  next: `hekla explain train`"]
    assert len(lines) == MAX_SHOWN + 3
