"""`vcctl queue top --by namespace|user`: who had how much, and where that is looked up."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hekla.api import wellknown
from hekla.api.fairshare import Shares
from hekla.cli.vcctl import fairshare
from hekla.kube.resources import CONFIGMAPS, QUEUES
from hekla.kube.sync_client import SyncClient
from tests.cli.conftest import Run

NAME = wellknown.FAIRSHARE_CONFIG_MAP
HAD = {
    "halfLifeS": 86400.0,
    "namespace": {"research": 0.25, "web": 0.5},
    "user": {"alice": 0.5, "bob": 0.083, "carol": 0.001},
}
Keep = Callable[..., None]


@pytest.fixture
def keep(admin: SyncClient) -> Iterator[Keep]:
    """An account as a scheduler writes it, gone after the test: all share a server."""
    kept = []

    def keep(namespace: str, shares: Any = HAD, queues: Any = None) -> None:
        data = {"shares": json.dumps(shares), "queues": json.dumps(queues or {})}
        admin.create(CONFIGMAPS, {"metadata": {"name": NAME, "namespace": namespace}, "data": data})
        kept.append(namespace)

    yield keep
    for namespace in kept:
        admin.delete(CONFIGMAPS, NAME, namespace=namespace)


def test_users_are_shown_by_what_they_had_the_most_first(
    vcctl: Run, keep: Keep, namespace: str
) -> None:
    keep(namespace)
    done = vcctl("queue", "top", "--by", "user", "--scheduler-namespace", namespace)
    assert done.lines == [
        "user   usage",
        "alice  ████████████············  50.0%",
        "bob    ██······················   8.3%",
        "carol  █·······················   0.1%",
        "of the cluster; usage counts half after every 24h0m0s",
    ]


def test_namespaces_are_shown_from_wherever_the_only_scheduler_keeps_account(
    vcctl: Run, keep: Keep, namespace: str
) -> None:
    keep(namespace)
    done = vcctl("queue", "top", "--by", "namespace")
    assert [line.split()[0] for line in done.lines] == ["namespace", "web", "research", "of"]


def test_the_tree_of_queues_has_what_they_had_from_there_too(
    vcctl: Run, keep: Keep, admin: SyncClient, namespace: str, unique: str
) -> None:
    admin.create(QUEUES, {"metadata": {"name": unique}, "spec": {"weight": 2}})
    keep(namespace, queues={unique: {"share": 0.125, "deserved": {"cpu": "6"}}})
    done = vcctl("queue", "top")
    (line,) = (line for line in done.lines if unique in line)
    assert "weight 2, usage 12.5% of the cluster" in line
    assert any("0 of 6 deserved" in line for line in done.lines)


def test_of_several_accounts_one_has_to_be_chosen(
    vcctl: Run, keep: Keep, admin: SyncClient, namespace: str
) -> None:
    keep(namespace)
    keep("default")
    done = vcctl("queue", "top", "--by", "user")
    assert done.code == 255
    assert f"in the namespaces {', '.join(sorted(['default', namespace]))}" in done.err
    assert "choose one: --scheduler-namespace" in done.err
    assert vcctl("queue", "top").code == 0, "the tree is shown without"


def test_where_nobody_keeps_account_it_says_what_to_configure(vcctl: Run, namespace: str) -> None:
    done = vcctl("queue", "top", "--by", "user")
    assert done.code == 255
    assert "there is no ConfigMap hekla-fairshare" in done.err
    assert "configure the scheduler's plugin fairshare" in done.err
    for by in ("queue", "user"):
        done = vcctl("queue", "top", "--by", by, "--scheduler-namespace", namespace)
        assert done.code == 255
        assert f"namespace {namespace} has no ConfigMap" in done.err


def test_an_account_that_says_nothing_is_named(vcctl: Run, keep: Keep, namespace: str) -> None:
    keep(namespace, shares={"user": 7})
    done = vcctl("queue", "top", "--by", "user", "--scheduler-namespace", namespace)
    assert done.code == 255
    assert f"ConfigMap {namespace}/{NAME}: shares is invalid" in done.err


def test_a_resource_is_asked_for_of_queues_only(vcctl: Run) -> None:
    done = vcctl("queue", "top", "--by", "user", "-r", "cpu")
    assert done.code == 1
    assert "--resource applies to queues" in done.err


def test_a_name_cannot_speak_to_the_terminal() -> None:
    text = "\n".join(fairshare.ranking(Shares(60.0, user={"\x1b[2Jmallory": 0.5}), "user"))
    assert "\\x1b[2Jmallory" in text
    assert "\x1b[2J" not in text


def test_watching_draws_it_again_when_the_scheduler_has_written(
    config: Path, keep: Keep, admin: SyncClient, namespace: str
) -> None:
    keep(namespace)
    command = ["queue", "top", "--by", "user", "--watch", "--scheduler-namespace", namespace]
    process = subprocess.Popen(
        [sys.executable, "-m", "hekla.cli.vcctl.main", *command],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "KUBECONFIG": str(config)},
    )
    assert process.stdout is not None
    try:
        assert [process.stdout.readline().split()[0] for _ in range(5)][1] == "alice"
        later = json.dumps({**HAD, "user": {"bob": 0.9}})
        # Until it is seen: the first may come before the watch.
        for number in range(1000):
            data = {"shares": later, "number": str(number)}
            admin.patch(CONFIGMAPS, NAME, {"data": data}, namespace=namespace)
            if _readable(process):
                break
        drawn = [process.stdout.readline() for _ in range(3)]
        assert drawn[-1].startswith("bob   █████████████████████")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _readable(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], 0.1)[0])
