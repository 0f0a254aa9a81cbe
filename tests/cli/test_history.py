"""`hekla history` and `hekla usage`: what is shown of jobs that have ended."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import hekla
from hekla.api.history import MeasuredUsage, TaskRequest, short_user
from hekla.cli.history import duration, exit_codes, history
from hekla.cli.usage import usage, usage_by
from hekla.cli.vcctl import main
from hekla.cli.vcctl.commands import run
from hekla.kube import kubeconfig
from hekla.kube.sync_client import SyncClient
from hekla.records.store import HISTORY_FILE, HistoryStore
from tests.cli.conftest import Result
from tests.realkube.backends import embedded_server
from tests.records.builders import record

NOW = datetime.now(UTC).timestamp()
DAY_S = 24 * 3600.0
Call = Callable[..., Result]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("history")
    store = HistoryStore(directory / HISTORY_FILE)
    with embedded_server(directory, "--history") as config:
        measured = MeasuredUsage(1, 1800.0, 3600.0, 1 << 30, 0.5, 1.0)
        store.put(
            record("train", ended=NOW - 60, user="alice", queue="ml", phase="Failed",
                   tasks=[TaskRequest("worker", 2, {"cpu": 1.0, "nvidia.com/gpu": 4.0})],
                   requests={"cpu": 2.0, "memory": 2.0 * 2**30, "nvidia.com/gpu": 8.0},
                   resource_seconds={"cpu": 7200.0, "nvidia.com/gpu": 28800.0},
                   exit_codes={"0": 1, "3": 1}, run_seconds=3600.0, wait_seconds=90000.0,
                   measured=measured),
            settled=True,
        )  # fmt: skip
        store.put(record("old", ended=NOW - 30 * DAY_S, user="bob"), settled=True)
        store.put(record("other", ended=NOW - 120, user="bob", namespace="ml"), settled=True)
        store.put(record("gone", ended=NOW - 90, user="\x1b[31mred"), settled=True)
        yield config
    store.close()


@pytest.fixture
def call(server: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    monkeypatch.setenv("KUBECONFIG", str(server))

    def call(program: str, *args: str) -> Result:
        command = {"history": history, "usage": usage, "vcctl": main.vcctl}[program]
        capsys.readouterr()
        code = run(command, program, args)
        said = capsys.readouterr()
        return Result(code, said.out, said.err)

    return call


def test_history_shows_the_newest_end_first_with_requests_and_efficiency(call: Call) -> None:
    shown = call("history")
    assert shown.code == 0
    header, first, *rest = (line.split() for line in shown.lines)
    assert [line[0] for line in rest] == ["gone", "old"]
    found = dict(zip(header, first, strict=True))
    assert (found["Job"], found["User"], found["Queue"]) == ("train", "alice", "ml")
    assert (found["State"], found["Exit"]) == ("Failed", "3")
    assert (found["Wait"], found["Run"]) == ("1-01:00:00", "01:00:00")
    assert (found["CPU"], found["Memory"], found["GPU"]) == ("2", "2Gi", "8")
    assert (found["CPUEff"], found["MemEff"]) == ("50%", "50%")


def test_history_is_filtered_and_limited(call: Call) -> None:
    assert [line.split()[0] for line in call("history", "--user", "bob").lines[1:]] == ["old"]
    assert [line.split()[1] for line in call("history", "-A", "--user", "bob").lines[1:]] == [
        "other",
        "old",
    ]
    assert len(call("history", "--since", "7d").lines) == 3
    assert len(call("history", "--phase", "failed,Cancelled").lines) == 2
    limited = call("history", "-A", "--limit", "1")
    assert len(limited.lines) == 2
    assert "there are more" in limited.err


def test_empty_history_says_so_with_a_next_step_on_stderr(call: Call) -> None:
    shown = call("history", "never-ran")
    assert (shown.code, shown.out) == (0, "")
    assert "no job that ended in namespace default has name 'never-ran'\n" in shown.err
    both = call("history", "--user", "nobody", "--since", "2999-01-01").err
    assert "ended in namespace default since 2999-01-01T00:00:00Z has user 'nobody'\n" in both
    assert (
        "no job has ended in all namespaces since 2999"
        in call("usage", "-A", "--since", "2999-01-01").err
    )
    assert "-A shows all namespaces" in shown.err
    assert json.loads(call("history", "never-ran", "-o", "json").out) == []


def test_formats_for_programs_have_all_columns(call: Call) -> None:
    (row,) = csv.DictReader(io.StringIO(call("history", "train", "-o", "csv").out))
    assert (row["exit_codes"], row["gpu"], row["cpu_efficiency"]) == ("0:1 3:1", "8.0", "0.5")
    empty = call("history", "never-ran", "-o", "csv").lines
    assert empty == [",".join(row)]
    (found,) = json.loads(call("history", "train", "-o", "json").out)
    assert found["resourceSeconds"] == {"cpu": 7200.0, "nvidia.com/gpu": 28800.0}


def test_escape_sequences_of_a_user_are_not_sent_to_the_terminal(call: Call) -> None:
    assert "\x1b[31m" not in call("history").out


def test_usage_sums_hours_waits_efficiency_and_failures(call: Call) -> None:
    rows = json.loads(call("usage", "-A", "--by", "user", "-o", "json").out)
    first = next(row for row in rows if row["user"] == "alice")
    assert first == {
        "user": "alice",
        "jobs": 1,
        "cpu_hours": 2.0,
        "gpu_hours": 8.0,
        "memory_gib_hours": 0.0,
        "mean_wait_seconds": 90000.0,
        "median_wait_seconds": 90000.0,
        "cpu_efficiency": 0.5,
        "memory_efficiency": 0.5,
        "failed_share": 1.0,
    }
    table = call("usage", "-A", "--by", "queue,namespace").lines
    assert table[0].split()[:3] == ["Queue", "Namespace", "Jobs"]
    assert table[-1].split()[:3] == ["total", "-", "3"]  # the fourth ended before the last week


def test_usage_by_an_unknown_key_names_the_known_ones(call: Call) -> None:
    shown = call("usage", "--by", "colour")
    assert shown.code == 1
    assert "not one of user, queue, namespace, phase" in shown.err


@pytest.mark.parametrize("since", ["yesterday", "-3d", "2026-13-01", "7", "99999999d"])
def test_nonsense_as_a_time_is_refused(call: Call, since: str) -> None:
    shown = call("history", "--since", since)
    assert shown.code == 1
    assert "--since" in shown.err


def test_token_is_sent_only_over_https_to_a_given_url(call: Call) -> None:
    shown = call("history", "--url", "http://127.0.0.1:8081")
    assert shown.code == 255
    assert "must start with https://" in shown.err
    lonely = call("history", "--insecure-skip-tls-verify")
    assert "belong to --url" in lonely.err


def test_view_of_a_deleted_job_points_to_its_record(call: Call) -> None:
    shown = call("vcctl", "job", "view", "train")
    assert shown.code == 255
    assert "it was Failed at" in shown.err
    assert "hekla history train -n default" in shown.err
    assert "history" not in call("vcctl", "job", "view", "never-ran").err


def test_sdk_returns_typed_records_over_pages(
    server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hekla.sdk.job_history.PAGE_SIZE", 2)
    with SyncClient(kubeconfig.load(server), component="test") as client:
        found = hekla.history(all_namespaces=True, client=client)
        assert [each.name for each in found] == ["train", "gone", "other", "old"]
        recent = hekla.history(since=timedelta(days=7), limit=1, client=client)
        assert [(each.name, each.gpus, each.cpu_efficiency) for each in recent] == [
            ("train", 8.0, 0.5)
        ]


def test_efficiency_of_a_group_leaves_out_use_without_a_request() -> None:
    asked = record("a", measured=MeasuredUsage(1, 50.0, 100.0))
    free = record("b", measured=MeasuredUsage(1, 1000.0, 0.0))
    unmeasured = record("c")
    (row,) = usage_by([asked, free, unmeasured], ["queue"])
    assert (row["cpu_efficiency"], row["memory_efficiency"]) == (0.5, None)


def test_user_of_hekla_user_add_is_shown_by_its_name() -> None:
    assert short_user("system:serviceaccount:alice:alice") == "alice"
    assert short_user("system:serviceaccount:ml:bot") == "system:serviceaccount:ml:bot"
    assert short_user("oidc:alice") == "oidc:alice"
    assert short_user("") == ""


def test_durations_and_exit_codes_read_as_in_slurm() -> None:
    assert duration(0) == "00:00:00"
    assert duration(93784) == "1-02:03:04"
    assert exit_codes(record()) == "-"
    assert exit_codes(record(exit_codes={"0": 2})) == "0"
    assert exit_codes(record(exit_codes={"0": 2, "1": 1, "137": 3})) == "1,137"
