"""The progress display of `hekla run`."""

from typing import Any

from hekla.cli.progress import Jobs, PlainScreen, panel

NOW = 1_000_000_012.0
CREATED = "2001-09-09T01:46:40Z"  # twelve seconds before


def job(phase: str = "Running", counts: dict[str, dict[str, int]] | None = None) -> dict[str, Any]:
    return {
        "metadata": {
            "uid": "u1", "name": "train", "namespace": "ml", "creationTimestamp": CREATED,
        },
        "spec": {
            "queue": "gold",
            "tasks": [{"name": "ps", "replicas": 2}, {"name": "worker", "replicas": 4}],
        },
        "status": {
            "state": {"phase": phase},
            "taskStatusCount": {task: {"phase": c} for task, c in (counts or {}).items()},
        },
    }  # fmt: skip


def group(name: str, created: str, phase: str = "Pending", why: str = "") -> dict[str, Any]:
    conditions = [{"type": "Unschedulable", "status": "True", "message": why}] if why else []
    return {
        "metadata": {"name": name, "namespace": "ml", "creationTimestamp": created},
        "spec": {"queue": "gold"},
        "status": {"phase": phase, "conditions": conditions},
    }


def jobs_with(*groups: dict[str, Any], phase: str = "Pending") -> Jobs:
    found = {(g["metadata"]["namespace"], g["metadata"]["name"]): g for g in groups}
    return Jobs({"u1": job(phase)}, found)


def test_the_panel_shows_phase_age_queue_and_progress_of_each_task() -> None:
    counts = {"ps": {"Running": 2}, "worker": {"Succeeded": 1, "Failed": 1, "Running": 1}}
    lines = list(panel(Jobs({"u1": job(counts=counts)}), NOW))
    assert lines[0] == "job train  Running  12s  queue gold"
    assert lines[1] == f"  ps      {'▒' * 20}  2 running of 2"
    assert lines[2] == f"  worker  {'█' * 5}{'×' * 5}{'▒' * 5}·····  " + (
        "1 succeeded, 1 failed, 1 running of 4"
    )


def test_pending_job_shows_its_queue_position() -> None:
    jobs = jobs_with(
        group("older", "2001-09-09T01:46:30Z"),
        group("train-u1", CREATED, why="3 of 6 pods fit"),
        group("younger", "2001-09-09T01:46:50Z"),
        group("placed", "2001-09-09T01:46:20Z", phase="Running"),
    )
    lines = list(panel(jobs, NOW))
    assert lines[0].endswith("position 2 of 3")
    assert lines[-1] == "  pending: 3 of 6 pods fit"


def test_running_job_has_no_position_and_finished_job_no_age() -> None:
    running = jobs_with(group("train-u1", CREATED, phase="Running"), phase="Completed")
    assert next(panel(running, NOW)) == "job train  Completed  queue gold"


def test_plain_output_prints_each_change_once(capsys: Any) -> None:
    jobs = jobs_with(group("train-u1", CREATED, why="3 of 6 pods fit"))
    screen = PlainScreen(jobs)
    screen.changed()
    screen.changed()
    jobs.followed["u1"] = job("Running")
    jobs.groups.clear()
    screen.changed()
    assert capsys.readouterr().out.splitlines() == [
        "job train: Pending",
        "job train is pending: 3 of 6 pods fit",
        "  next: `hekla explain train -n ml` tells more",
        "job train: Running",
    ]


def test_the_bar_of_finished_pods_is_full_whatever_their_number() -> None:
    for succeeded, failed, total in ((1, 2, 3), (33, 66, 99), (999, 1, 1000), (1, 999, 1000)):
        one = job("Completed", {"worker": {"Succeeded": succeeded, "Failed": failed}})
        one["spec"]["tasks"] = [{"name": "worker", "replicas": total}]
        bar = list(panel(Jobs({"u1": one}), NOW))[1].split()[1]
        assert len(bar) == 20
        assert set(bar) == {"█", "×"}, bar


def test_the_last_phase_follows_the_last_output(capsys: Any) -> None:
    jobs = Jobs({"u1": job("Completed")})
    screen = PlainScreen(jobs, lambda: 0.0)
    screen.changed()
    screen.output("p", "bye")
    screen.ended()
    screen.changed()
    assert capsys.readouterr().out.splitlines() == ["p | bye", "job train: Completed"]


def test_the_last_phase_of_one_job_does_not_wait_for_the_others(capsys: Any) -> None:
    now = iter([0.0, 1.0, 5.0, 5.0, 9.0])
    screen = PlainScreen(Jobs({"u1": job("Failed")}), lambda: next(now))
    screen.changed()
    assert capsys.readouterr().out == ""
    screen.changed()
    assert capsys.readouterr().out == "job train: Failed\n"


def test_the_verdict_on_a_gang_that_restarts_is_printed_when_it_is_pending_again(
    capsys: Any,
) -> None:
    jobs = jobs_with(phase="Restarting")
    message = "3/3 tasks in gang unschedulable: 1 pod exists, and the gang needs 3"
    condition = {"type": "Unschedulable", "status": "True", "message": message}
    metadata = jobs.followed["u1"]["metadata"]
    group = {"metadata": metadata, "status": {"conditions": [condition]}}
    jobs.groups[metadata["namespace"], f"{metadata['name']}-u1"] = group
    screen = PlainScreen(jobs)
    screen.changed()
    assert capsys.readouterr().out.splitlines() == ["job train: Restarting"]
    assert jobs.pending_reasons("u1") == []
    jobs.followed["u1"] = job("Pending")
    screen.changed()
    assert "job train is pending: 1 pod exists, and the gang needs 3" in capsys.readouterr().out


def waiting_pod(name: str, why: str, message: str = "") -> dict[str, Any]:
    waiting = {"reason": why, "message": message}
    return {
        "metadata": {"name": name, "namespace": "ml", "uid": name},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]},
    }


def test_a_reason_of_several_pods_is_printed_once_and_never_again(capsys: Any) -> None:
    jobs = jobs_with()
    screen = PlainScreen(jobs)
    for name in ("train-worker-0", "train-worker-1"):
        jobs.reasons.on_pod("u1", waiting_pod(name, "ErrImagePull", f"no image for {name}"))
        screen.changed()
    jobs.reasons.on_pod("u1", waiting_pod("train-worker-0", "ContainerCreating"))
    screen.changed()
    jobs.reasons.on_pod("u1", waiting_pod("train-worker-0", "ErrImagePull", "other image"))
    screen.changed()
    lines = capsys.readouterr().out.splitlines()
    told = [line for line in lines if "cannot start" in line]
    assert told == [
        "job train is pending: pod train-worker-0 cannot start: ErrImagePull: "
        "no image for train-worker-0",
        "job train is pending: pod train-worker-0 cannot start: ErrImagePull: other image",
    ]
    assert "  next: check the name of the image, and the pull secrets of the pod" in lines


def test_the_panel_shows_the_present_reasons_of_pods() -> None:
    jobs = jobs_with()
    jobs.reasons.on_pod("u1", waiting_pod("train-worker-0", "ErrImagePull"))
    assert list(panel(jobs, NOW))[-1] == (
        "  pending: pod train-worker-0 cannot start: ErrImagePull"
    )
    jobs.reasons.on_pod_deleted(waiting_pod("train-worker-0", "ErrImagePull"))
    assert "pending:" not in "".join(panel(jobs, NOW))


def test_other_commands_are_shown_with_the_flags_that_find_the_cluster() -> None:
    jobs = jobs_with()
    jobs.cluster_flags = "--data-dir /data"
    assert jobs.command("explain", "u1") == "hekla explain train -n ml --data-dir /data"
