"""CronJobs."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from hekla.controllers.cronjob.schedule import CronView, job_for_run, latest_missed, next_step
from hekla.controllers.effects import CreateJob, DeleteJob, EmitEvent, RequeueAfter, SetStatus
from hekla.kube.resources import CRON_JOBS, JOBS
from hekla.units.clock import ManualClock
from hekla.units.cron import parse_cron
from hekla.units.objects import Object
from hekla.units.timestamps import format_time, parse_time

from .cluster import running_cluster
from .manifests import job

BASE = parse_time("2026-03-01T00:00:00Z")


def cron(schedule: str = "*/10 * * * *", created: float = BASE, **spec: Any) -> Object:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "CronJob",
        "metadata": {
            "name": "nightly",
            "namespace": "default",
            "uid": "uid-cron",
            "creationTimestamp": format_time(created),
        },
        "spec": {"schedule": schedule, "jobTemplate": {"spec": job()["spec"]}, **spec},
        "status": spec.pop("status", {}),
    }


def run(of: Object, at: float, phase: str = "Running") -> Object:
    made = job_for_run(of, at, UTC)
    made["metadata"] |= {"uid": f"uid-{at}", "creationTimestamp": format_time(at)}
    made["status"] = {"state": {"phase": phase, "lastTransitionTime": format_time(at + 5)}}
    return made


def only(effects: list[Any], kind: type) -> list[Any]:
    return [each for each in effects if isinstance(each, kind)]


def started(effects: list[Any]) -> list[str]:
    return [each.body["metadata"]["name"] for each in only(effects, CreateJob)]


def test_run_starts_at_its_scheduled_time_with_a_name_from_the_minute() -> None:
    of = cron()
    assert started(next_step(CronView(of, BASE + 599))) == []
    (wake,) = only(next_step(CronView(of, BASE + 599)), RequeueAfter)
    assert round(wake.after_s, 3) == 1.1
    effects = next_step(CronView(of, BASE + 600.1))
    minute = int(BASE + 600) // 60
    assert [f"nightly-{minute}"] == started(effects)
    body = only(effects, CreateJob)[0].body
    stamp = body["metadata"]["annotations"]["volcano.sh/cronjob-scheduled-timestamp"]
    assert stamp == "2026-03-01T00:10:00Z"
    (status,) = only(effects, SetStatus)
    assert status.patch["lastScheduleTime"] == "2026-03-01T00:10:00Z"
    assert [f"nightly-{minute}"] == [each["name"] for each in status.patch["active"]]


def test_run_starts_once_even_if_the_status_write_was_lost() -> None:
    of = cron()
    effects = next_step(CronView(of, BASE + 601, [run(of, BASE + 600)]))
    assert started(effects) == []
    assert only(effects, SetStatus)[0].patch["lastScheduleTime"] == "2026-03-01T00:10:00Z"


def test_only_the_latest_missed_run_is_started() -> None:
    effects = next_step(CronView(cron(), BASE + 3700))
    assert [f"nightly-{int(BASE + 3600) // 60}"] == started(effects)


def test_run_past_its_starting_deadline_is_skipped() -> None:
    of = cron("0 * * * *", startingDeadlineSeconds=60)
    assert started(next_step(CronView(of, BASE + 3700))) == []
    assert len(started(next_step(CronView(of, BASE + 3650)))) == 1


def test_too_many_missed_runs_emit_an_event_and_start_the_latest() -> None:
    effects = next_step(CronView(cron("* * * * *"), BASE + 86_400 * 30 + 30))
    assert [f"nightly-{int(BASE + 86_400 * 30) // 60}"] == started(effects)
    assert [each.reason for each in only(effects, EmitEvent)] == ["TooManyMissedTimes"]


def test_forbid_skips_and_replace_deletes_the_active_job() -> None:
    for policy, want_started, want_deleted in (
        ("Allow", 1, 0),
        ("Forbid", 0, 0),
        ("Replace", 1, 1),
    ):
        of = cron(concurrencyPolicy=policy)
        effects = next_step(CronView(of, BASE + 1201, [run(of, BASE + 600)]))
        assert want_started == len(started(effects)), policy
        assert want_deleted == len(only(effects, DeleteJob)), policy


def test_suspended_cron_job_starts_nothing_but_prunes_its_history() -> None:
    of = cron(suspend=True, successfulJobsHistoryLimit=0)
    effects = next_step(CronView(of, BASE + 5000, [run(of, BASE + 600, "Completed")]))
    assert started(effects) == []
    assert len(only(effects, DeleteJob)) == 1


def test_finished_jobs_beyond_the_history_limits_are_deleted() -> None:
    of = cron("0 0 1 1 *", successfulJobsHistoryLimit=1, failedJobsHistoryLimit=1)
    runs = [
        run(of, BASE + 600 * i, phase)
        for i, phase in enumerate(["Completed", "Failed", "Completed", "Terminated", "Aborted"])
    ]
    effects = next_step(CronView(of, BASE + 5000, runs))
    assert [runs[0], runs[1]] == [each.job for each in only(effects, DeleteJob)]
    (status,) = only(effects, SetStatus)
    assert [runs[4]["metadata"]["name"]] == [each["name"] for each in status.patch["active"]]
    assert format_time(BASE + 1205) == status.patch["lastSuccessfulTime"]


def test_time_zone_shifts_the_schedule_and_the_timestamp() -> None:
    of = cron("0 3 * * *", timeZone="Europe/Oslo")
    effects = next_step(CronView(of, BASE + 2 * 3600 + 1))
    stamp = only(effects, CreateJob)[0].body["metadata"]["annotations"]
    assert stamp["volcano.sh/cronjob-scheduled-timestamp"] == "2026-03-01T03:00:00+01:00"


def test_daylight_saving_change_neither_skips_nor_repeats_a_run() -> None:
    zone = ZoneInfo("Europe/Oslo")
    start = datetime(2026, 3, 28, 12, 0, tzinfo=zone).timestamp()
    following = parse_cron("30 2 * * *")  # does not exist on 29 March
    runs = set()
    for hour in range(72):
        found, _ = latest_missed(following, start, start + hour * 3600, zone)
        runs.add(found)
    assert len(runs) == 4, "none at first, then one a day"


def test_unknown_time_zone_or_schedule_emits_an_event() -> None:
    for spec, reason in (
        ({"timeZone": "Nowhere/Land"}, "InvalidTimeZone"),
        ({"schedule": "often"}, "UnParseableCronJobSchedule"),
    ):
        of = cron()
        of["spec"] |= spec
        assert [reason] == [
            each.reason for each in only(next_step(CronView(of, BASE + 601)), EmitEvent)
        ]


async def test_a_cron_job_starts_jobs_on_the_server(tmp_path: Path) -> None:
    # Certificates are checked against the real date, so the clock starts near it.
    clock = ManualClock(time.time() // 600 * 600 + 1)
    async with running_cluster(tmp_path / "data", clock=clock) as cluster:
        of = cron()
        del of["status"], of["metadata"]["uid"], of["metadata"]["creationTimestamp"]
        of["spec"]["timeZone"] = "Etc/UTC"
        await cluster.client.create(CRON_JOBS, of)
        await cluster.settle()
        for number in (1, 2):
            await clock.advance(600)

            async def there(number: int = number) -> bool:
                return len((await cluster.client.list(JOBS)).items) == number

            await cluster.until(there, f"run {number}")
            await cluster.settle()
        stored = await cluster.client.get(CRON_JOBS, "nightly", namespace="default")
        assert len(stored["status"]["active"]) == 2
