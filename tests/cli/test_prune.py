"""`hekla prune`: what counts as ended long ago, and that nothing else is deleted."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
import yaml

from hekla.api.wellknown import RUN_ENVIRONMENT, RUN_SNAPSHOT
from hekla.cli import prune_plan
from hekla.cli.prunable import Scope, ended_objects, environments, kept_logs, used_keys
from hekla.cli.prune import prune
from hekla.cli.prune_plan import Plan, await_removal
from hekla.cli.vcctl.commands import run
from hekla.kube import kubeconfig
from hekla.kube.calls import Call
from hekla.kube.data_dir import PID_FILE
from hekla.kube.resources import (
    BATCH_JOBS,
    JOBS,
    NAMESPACES,
    PODS,
    ROLE_BINDINGS,
    SERVICE_ACCOUNTS,
)
from hekla.kube.sync_client import SyncClient
from hekla.sdk import host_paths
from hekla.units.objects import Object
from hekla.units.timestamps import format_time
from tests.cli.conftest import Result, job
from tests.realkube.backends import embedded_server

NOW = time.time()
DAY_S = 24 * 3600.0
Prune = Callable[..., Result]


def obj(name: str, status: Object, **metadata: Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, **metadata},
        "status": status,
    }


def ended(days: float) -> str:
    return format_time(NOW - days * DAY_S)


def volcano(name: str, phase: str, days: float, **metadata: Any) -> Object:
    state = {"phase": phase, "lastTransitionTime": ended(days)}
    return obj(name, {"state": state}, **metadata)


def names(resource: Any, *objects: Object) -> list[str]:
    return [each.name for each in ended_objects(resource, objects, NOW - 7 * DAY_S)]


def test_only_jobs_that_ended_long_ago_and_have_no_owner_are_pruned() -> None:
    owner = {"kind": "JobFlow", "name": "f", "uid": "u", "controller": True}
    assert names(
        JOBS,
        volcano("old", "Completed", 8),
        volcano("failed", "Failed", 8),
        volcano("young", "Completed", 6),
        volcano("running", "Running", 30),
        volcano("suspended", "Aborted", 30),
        volcano("of-a-flow", "Completed", 30, ownerReferences=[owner]),
        volcano("going", "Completed", 30, deletionTimestamp=ended(0)),
        obj("new", {}),
        obj("odd", {"state": {"phase": "Completed", "lastTransitionTime": "yesterday"}}),
    ) == ["old", "failed", "suspended"]


def test_an_aborted_job_is_named_as_such_because_it_could_be_resumed() -> None:
    (one,) = ended_objects(JOBS, [volcano("stopped", "Aborted", 8)], NOW - 7 * DAY_S)
    assert one.kind == "aborted job"


def test_ends_of_kubernetes_jobs_and_pods_are_found() -> None:
    done = {"type": "Complete", "status": "True", "lastTransitionTime": ended(8)}
    assert names(BATCH_JOBS, obj("done", {"conditions": [done]}), obj("runs", {})) == ["done"]
    exited = [{"state": {"terminated": {"finishedAt": ended(8)}}}]
    assert names(
        PODS,
        obj("over", {"phase": "Succeeded", "containerStatuses": exited}),
        obj("runs", {"phase": "Running", "containerStatuses": exited}),
        obj("rejected", {"phase": "Failed"}, creationTimestamp=ended(9)),
    ) == ["over", "rejected"]


def log_of(data_dir: Path, namespace: str, pod: str, days: float) -> Path:
    path = data_dir / "node" / "logs" / namespace / pod / f"uid-{pod}"
    (path / "main").mkdir(parents=True)
    (path / "main" / "0.log").write_text("x" * 10_000)
    os.utime(path, (NOW - days * DAY_S,) * 2)
    return path


def test_kept_logs_are_selected_by_age_and_namespace_and_links_are_left(tmp_path: Path) -> None:
    log_of(tmp_path, "default", "old", 8)
    log_of(tmp_path, "default", "young", 6)
    log_of(tmp_path, "ml", "other", 8)
    (tmp_path / "node" / "logs" / "default" / "old" / "link").symlink_to("/etc")

    def found(namespace: str | None) -> list[str]:
        return sorted(each.name for each in kept_logs(Scope(tmp_path, namespace, NOW - 7 * DAY_S)))

    assert found("default") == ["old"]
    assert found(None) == ["old", "other"]
    assert found("*") == []
    (one,) = kept_logs(Scope(tmp_path, "ml", NOW))
    assert one.size_bytes >= 10_000


def test_pods_that_the_agent_does_not_remove_in_time_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune_plan, "REMOVAL_PATIENCE_S", 0.0)
    stays = tmp_path / "node" / "pods" / "uid-a"
    stays.mkdir(parents=True)
    gone, kept = stays.with_name("uid-b"), log_of(tmp_path, "default", "b", 0)
    assert await_removal(Plan([], pods={"uid-a": stays, "uid-b": gone})) == 1
    assert not kept.exists()


def environment(root: Path, key: str, days: float) -> Path:
    path = root / "environments" / key
    (path / "lib").mkdir(parents=True)
    (path / "lib" / "code.py").write_text("x" * 10_000)
    (path / "hekla-complete").touch()
    os.utime(path / "hekla-complete", (NOW - days * DAY_S,) * 2)
    return path


def snapshot(root: Path, key: str, days: float) -> Path:
    path = root / "snapshots" / key
    path.mkdir(parents=True)
    os.utime(path, (NOW - days * DAY_S,) * 2)
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of this user: the real one is left alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(host_paths, "SYSTEM_CACHE", tmp_path / "none")
    return tmp_path / "cache" / "hekla"


# On a server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with embedded_server(tmp_path_factory.mktemp("prune")) as config:
        (config.parent / PID_FILE).write_text(str(os.getpid()))
        yield config


@pytest.fixture
def admin(server: Path) -> Iterator[SyncClient]:
    with SyncClient(kubeconfig.load(server), component="test") as client:
        yield client


@pytest.fixture
def call(
    server: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Prune:
    monkeypatch.setenv("KUBECONFIG", str(server))

    def call(*args: str) -> Result:
        command: click.Command = prune
        capsys.readouterr()
        code = run(command, "prune", args)
        said = capsys.readouterr()
        return Result(code, said.out, said.err)

    return call


def make(admin: SyncClient, namespace: str, name: str, phase: str, days: float) -> None:
    if admin.find(NAMESPACES, namespace) is None:
        admin.create(NAMESPACES, {"metadata": {"name": namespace}})
    admin.create(JOBS, job(name), namespace=namespace)
    state = {"phase": phase, "lastTransitionTime": ended(days)}
    admin.patch_status(JOBS, name, {"state": state}, namespace=namespace)


def left(admin: SyncClient, namespace: str) -> list[str]:
    return sorted(each["metadata"]["name"] for each in admin.list(JOBS, namespace=namespace))


def test_plan_is_shown_and_nothing_is_deleted_before_a_confirmation(
    server: Path, admin: SyncClient, call: Prune
) -> None:
    make(admin, "shown", "old", "Completed", 8)
    make(admin, "shown", "runs", "Running", 8)
    log = log_of(server.parent, "shown", "gone-pod", 8)
    shown = call("-n", "shown", "--dry-run")
    assert shown.code == 0
    assert [line.split()[:3] for line in shown.lines[1:3]] == [
        ["job", "shown", "old"],
        ["kept", "log", "shown"],
    ]
    assert "1 job and 1 kept log ended before" in shown.out
    refused = call("-n", "shown")
    assert refused.code == 1
    assert "add --yes" in refused.err
    assert (left(admin, "shown"), log.exists()) == (["old", "runs"], True)
    done = call("-n", "shown", "--yes")
    assert "deleted 1 job and 1 kept log, freed" in done.out
    assert (left(admin, "shown"), log.exists()) == (["runs"], False)
    again = call("-n", "shown", "--yes")
    assert (again.code, again.out.startswith("nothing to prune")) == (0, True)


def test_environments_and_snapshots_that_no_job_uses_are_removed_with_their_size(
    admin: SyncClient, call: Prune, cache: Path
) -> None:
    make(admin, "caches", "runs", "Running", 8)
    make(admin, "caches", "old", "Completed", 8)
    for name, notes in (("runs", {RUN_ENVIRONMENT: "used"}), ("old", {RUN_SNAPSHOT: "done"})):
        pod = {
            "metadata": {"name": name, "annotations": notes},
            "spec": {"containers": [{"name": "main", "image": "host"}]},
        }
        admin.create(PODS, pod, namespace="caches")
    admin.patch_status(PODS, "old", {"phase": "Succeeded"}, namespace="caches")
    used, unused = environment(cache, "used", 8), environment(cache, "unused", 8)
    young, done = environment(cache, "young", 6), snapshot(cache, "done", 8)
    shown = call("-n", "caches", "--dry-run")
    assert "1 job, 1 environment and 1 snapshot ended" in shown.out
    assert any(line.split()[:3] == ["environment", "-", "unused"] for line in shown.lines)
    assert "KiB" in shown.out or "Ki" in shown.out
    assert "deleted 1 job, 1 environment and 1 snapshot" in call("-n", "caches", "--yes").out
    assert [path.exists() for path in (used, unused, young, done)] == [True, False, True, False]


def test_keys_are_found_in_jobs_and_in_templates_below_them() -> None:
    template = {"metadata": {"annotations": {RUN_ENVIRONMENT: "e", RUN_SNAPSHOT: "s"}}}
    assert sorted(used_keys([{"spec": {"tasks": [{"template": template}]}}])) == ["e", "s"]


def test_an_environment_that_a_run_has_used_since_the_plan_stays(cache: Path) -> None:
    path = environment(cache, "again", 8)
    (one,) = environments(Scope(cache, None, NOW - 7 * DAY_S, frozenset()))
    os.utime(path / "hekla-complete")
    assert one.remove is not None
    one.remove()
    assert path.exists()


def test_without_a_flag_only_the_namespace_of_the_context_is_pruned(
    admin: SyncClient, call: Prune
) -> None:
    make(admin, "elsewhere", "old", "Failed", 8)
    call("--yes")
    assert left(admin, "elsewhere") == ["old"]
    assert "1 job ended" in call("-A", "--yes").out
    assert left(admin, "elsewhere") == []


def test_a_reader_prunes_nothing_and_is_told_so(
    server: Path, admin: SyncClient, call: Prune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(admin, "theirs", "old", "Failed", 8)
    admin.create(SERVICE_ACCOUNTS, {"metadata": {"name": "bot", "namespace": "theirs"}})
    admin.create(
        ROLE_BINDINGS,
        {
            "metadata": {"name": "bot", "namespace": "theirs"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "bot", "namespace": "theirs"}],
        },
    )  # fmt: skip
    path = "/api/v1/namespaces/theirs/serviceaccounts/bot/token"
    body = b'{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}'
    token = msgspec.json.decode(admin.call(Call("POST", path, body=body)))["status"]["token"]
    content = yaml.safe_load(server.read_text())
    content["users"][0]["user"] = {"token": token}
    (tmp_path / "reader").write_text(yaml.safe_dump(content))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "reader"))
    shown = call("-n", "theirs", "--yes")
    assert shown.out.startswith("nothing to prune")
    assert "1 more in namespace theirs are not yours to delete" in shown.err
    assert left(admin, "theirs") == ["old"]
    assert "forbidden" in call("-A", "--yes").err


@pytest.mark.parametrize("age", ["x", "-1d", "7", ""])
def test_nonsense_as_an_age_is_refused(call: Prune, age: str) -> None:
    assert call("--older-than", age).code == 1
