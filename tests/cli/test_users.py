"""`hekla user`: people who share the cluster on this machine."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tools.waiting import until

from hekla.cli.main import main
from hekla.kube import kubeconfig
from hekla.kube.errors import Forbidden, Unauthorized
from hekla.kube.resources import JOBS, NAMESPACES, NODES, PODS, QUEUES, SECRETS
from hekla.kube.sync_client import SyncClient


def _hekla(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


@contextlib.contextmanager
def _cluster(where: Path, *flags: str) -> Iterator[Path]:
    program = [sys.executable, "-m", "hekla.cli.main"]
    words = ["--data-dir", str(where)]
    subprocess.run(
        [*program, "up", *words, "--port", "0", "--no-agent", "--detach", *flags], check=True
    )
    try:
        yield where
    finally:
        subprocess.run([*program, "down", *words], check=True)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with _cluster(tmp_path_factory.mktemp("cluster") / "data", "--multi-user") as where:
        yield where


def _add(where: Path, name: str, *flags: str) -> Path:
    done = _hekla("user", "add", name, "--data-dir", str(where), *flags)
    assert done.exit_code == 0, done.output
    path = where.parent / f"{name}.kubeconfig"
    path.write_text(done.stdout)
    return path


def test_second_user_is_refused_unless_the_cluster_keeps_users_apart(tmp_path: Path) -> None:
    with _cluster(tmp_path / "data") as where:
        done = _hekla("user", "add", "eve", "--data-dir", str(where))
        assert done.exit_code == 1
        assert "hekla up --multi-user" in done.output
        with SyncClient(kubeconfig.load(where / "kubeconfig")) as admin:
            assert admin.find(NAMESPACES, "eve") is None


def test_multi_user_is_refused_where_pods_would_be_one_user(tmp_path: Path) -> None:
    words = ["up", "--data-dir", str(tmp_path / "data"), "--multi-user", "--pod-user", "owner"]
    done = _hekla(*words)
    assert done.exit_code == 1
    assert "all pods are one user of this machine" in done.output
    assert not (tmp_path / "data" / "state.db").exists()


def test_user_submits_to_granted_queues_only(shared: Path) -> None:
    with SyncClient(kubeconfig.load(shared / "kubeconfig")) as admin:
        for name in ("granted", "foreign"):
            admin.create(QUEUES, {"metadata": {"name": name}, "spec": {"weight": 1}})
            until(partial(_is_open, admin, name))
    with SyncClient(kubeconfig.load(_add(shared, "frank", "--queue", "granted"))) as frank:
        frank.create(JOBS, _job("allowed", "granted"), namespace="frank")
        with pytest.raises(Forbidden, match="foreign") as refused:
            frank.create(JOBS, _job("refused", "foreign"), namespace="frank")
        assert "frank" in str(refused.value)
        spec = {"containers": [{"name": "main", "image": "host"}]}
        plain = {"metadata": {"name": "plain"}, "spec": spec}
        frank.create(PODS, plain, namespace="frank")  # in the granted queue
    with (
        SyncClient(kubeconfig.load(_add(shared, "grace"))) as grace,
        pytest.raises(Forbidden, match='"default"'),
    ):
        grace.create(PODS, plain, namespace="grace")


def _is_open(admin: SyncClient, queue: str) -> bool:
    return bool((admin.get(QUEUES, queue).get("status") or {}).get("state"))


def _job(name: str, queue: str) -> dict[str, object]:
    container = {"name": "main", "image": "host", "command": ["true"]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    task = {"name": "t", "replicas": 1, "template": template}
    return {"metadata": {"name": name}, "spec": {"queue": queue, "tasks": [task]}}


def test_user_works_in_the_own_namespace_only(shared: Path) -> None:
    with SyncClient(kubeconfig.load(shared / "kubeconfig")) as admin:
        admin.create(QUEUES, {"metadata": {"name": "research"}, "spec": {"weight": 1}})
    _add(shared, "bob")
    with SyncClient(kubeconfig.load(_add(shared, "alice", "--queue", "research"))) as alice:
        assert alice.namespace == "alice"
        assert alice.list(PODS, namespace="alice").items == []
        alice.create(SECRETS, {"metadata": {"name": "mine"}}, namespace="alice")
        assert alice.list(NODES) is not None
        assert {queue["metadata"]["name"] for queue in alice.list(QUEUES)} >= {"research"}
        for call in (
            lambda: alice.list(SECRETS, namespace="bob"),
            lambda: alice.list(JOBS, namespace="bob"),
            lambda: alice.list(SECRETS, namespace="kube-system"),
            lambda: alice.list(NAMESPACES),
            lambda: alice.create(QUEUES, {"metadata": {"name": "x"}, "spec": {"weight": 1}}),
        ):
            with pytest.raises(Forbidden):
                call()


def test_removed_user_has_no_rights_and_the_namespace_stays(shared: Path) -> None:
    path = _add(shared, "carol")
    with SyncClient(kubeconfig.load(path)) as carol:
        carol.create(SECRETS, {"metadata": {"name": "kept"}}, namespace="carol")
        assert "carol" in _hekla("user", "list", "--data-dir", str(shared)).output
        done = _hekla("user", "remove", "carol", "--data-dir", str(shared))
        assert done.exit_code == 0, done.output
        with pytest.raises((Unauthorized, Forbidden)):
            carol.list(SECRETS, namespace="carol")
    with SyncClient(kubeconfig.load(shared / "kubeconfig")) as admin:
        assert admin.get(SECRETS, "kept", namespace="carol")
    again = _hekla("user", "remove", "carol", "--data-dir", str(shared))
    assert again.exit_code == 1
    assert "there is no user 'carol'" in again.output


def test_names_of_other_namespaces_and_queues_that_do_not_exist_are_refused(shared: Path) -> None:
    with SyncClient(kubeconfig.load(shared / "kubeconfig")) as admin:
        admin.create(NAMESPACES, {"metadata": {"name": "payroll"}})
    for words, reason in (
        (["payroll"], "was not made for this user"),
        (["kube-system"], "namespace of the cluster"),
        (["dave", "--queue", "nowhere"], "queue 'nowhere' does not exist"),
        (["Not_a_Name"], "Not_a_Name"),
    ):
        done = _hekla("user", "add", *words, "--data-dir", str(shared))
        assert done.exit_code == 1, done.output
        assert reason in done.output
