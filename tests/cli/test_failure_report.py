"""What `hekla run` prints about a failed job."""

from __future__ import annotations

from typing import Any

from hekla.cli.failure_report import (
    MAX_SHOWN,
    FailedContainer,
    by_index,
    failed_containers,
    heading,
    report,
)
from hekla.sdk.array_status import failure_lines

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


def test_the_signal_that_ended_a_container_is_named() -> None:
    codes = [139, 137, 134, 128, 250, 255, 1]
    pod = failed_pod(containerStatuses=[ended(f"c{code}", code) for code in codes])
    assert [one.why for one in failed_containers(pod)] == [
        "exit code 139, SIGSEGV",
        "exit code 137, SIGKILL",
        "exit code 134, SIGABRT",
        "exit code 128",
        "exit code 250",
        "exit code 255",
        "exit code 1",
    ]
    assert str(failed_containers(pod)[0]).endswith("exited with code 139 (SIGSEGV)")


def test_a_program_that_the_pod_does_not_find_leads_to_the_path() -> None:
    def hints(code: int, reason: str) -> list[str]:
        one = FailedContainer("p", "ml", "main", code, reason, "exec: python: not found")
        return list(report(JOB, "Failed", [one], "more"))[2:-1]

    assert "correct its name or the PATH" in hints(127, "StartError")[0]
    assert hints(127, "Error") == hints(126, "StartError") == []


def test_a_pod_that_failed_without_a_container_shows_its_reason() -> None:
    (one,) = failed_containers(failed_pod(reason="Evicted", message="the node is full"))
    assert str(one) == "pod train-w-0 failed (Evicted: the node is full)"


def test_a_pod_that_was_ended_shows_by_what_instead_of_error() -> None:
    containers = [ended("main", 143), ended("helper", 137, "OOMKilled")]
    pod = failed_pod(reason="Terminated", message="it was stopped", containerStatuses=containers)
    assert [one.why for one in failed_containers(pod)] == [
        "exit code 143, Terminated",
        "exit code 137, OOMKilled",
    ]


def test_the_report_is_bounded_and_ends_with_the_command_for_more() -> None:
    many = [FailedContainer(f"p{n}", "ml", "main", 1) for n in range(MAX_SHOWN + 3)]
    lines = list(report(JOB, "Failed", many, "`hekla explain train`"))
    assert lines[0] == "job train ended as Failed"
    assert lines[-2:] == ["  … and 3 more", "  next: `hekla explain train`"]
    assert len(lines) == MAX_SHOWN + 3


def test_failures_are_in_the_order_of_their_numbers() -> None:
    pods = [FailedContainer(f"a-w-{n}", "ml", "w", n, index=n) for n in (13, 3, 7)]
    assert [one.index for one in sorted(pods, key=by_index)] == [3, 7, 13]
    plain = [FailedContainer(name, "ml", "w", 1) for name in ("a-w-10", "a-v-2", "a-w-9")]
    assert [one.pod for one in sorted(plain, key=by_index)] == ["a-v-2", "a-w-9", "a-w-10"]
    reasons = {f"exit code {n}": (n,) for n in (13, 3, 7)}
    assert list(failure_lines(reasons)) == ["3: exit code 3", "7: exit code 7", "13: exit code 13"]


def test_output_that_is_shown_again_has_a_heading() -> None:
    failed = FailedContainer("a-w-3", "ml", "w", 1, index=3)
    assert heading(failed) == "the last lines of index 3, pod a-w-3, container w:"
