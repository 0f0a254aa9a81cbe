"""`vcctl queue top --by namespace|user`: usage over time, and the lookup of its record."""

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
    """A usage record as the scheduler writes it; deleted after the test, since tests share a
    server.
    """
    kept = []

    def keep(namespace: str, shares: Any = HAD, queues: Any = None) -> None:
        data = {"shares": json.dumps(shares), "queues": json.dumps(queues or {})}
        admin.create(CONFIGMAPS, {"metadata": {"name": NAME, "namespace": namespace}, "data": data})
        kept.append(namespace)

    yield keep
    for namespace in kept:
        admin.delete(CONFIGMAPS, NAME, namespace=namespace)


def test_users_are_sorted_by_usage(vcctl: Run, keep: Keep, namespace: str) -> None:
    keep(namespace)
    done = vcctl("queue", "top", "--by", "user", "--scheduler-namespace", namespace)
    assert done.lines == [
        "user   usage",
        "alice  ████████████············  50.0%",
        "bob    ██······················   8.3%",
        "carol  █·······················   0.1%",
        "of the cluster; usage counts half after every 24h0m0s",
    ]


def test_usage_record_is_found_in_any_namespace(vcctl: Run, keep: Keep, namespace: str) -> None:
    keep(namespace)
    done = vcctl("queue", "top", "--by", "namespace")
    assert [line.split()[0] for line in done.lines] == ["namespace", "web", "research", "of"]


def test_queue_tree_shows_usage_over_time(
    vcctl: Run, keep: Keep, admin: SyncClient, namespace: str, unique: str
) -> None:
    admin.create(QUEUES, {"metadata": {"name": unique}, "spec": {"weight": 2}})
    keep(namespace, queues={unique: {"share": 0.125, "deserved": {"cpu": "6"}}})
    done = vcctl("queue", "top")
    (line,) = (line for line in done.lines if unique in line)
    assert "weight 2, usage 12.5% of the cluster" in line
    assert any("0 of 6 deserved" in line for line in done.lines)


def test_several_usage_records_need_a_choice(
    vcctl: Run, keep: Keep, admin: SyncClient, namespace: str
) -> None:
    keep(namespace)
    keep("default")
    done = vcctl("queue", "top", "--by", "user")
    assert done.code == 255
    assert f"in the namespaces {', '.join(sorted(['default', namespace]))}" in done.err
    assert "choose one: --scheduler-namespace" in done.err
    assert vcctl("queue", "top").code == 0, "the tree is shown without"


def test_missing_usage_record_gets_a_hint(vcctl: Run, namespace: str) -> None:
    done = vcctl("queue", "top", "--by", "user")
    assert done.code == 255
    assert "there is no ConfigMap hekla-fairshare" in done.err
    assert "configure the scheduler's plugin fairshare" in done.err
    for by in ("queue", "user"):
        done = vcctl("queue", "top", "--by", by, "--scheduler-namespace", namespace)
        assert done.code == 255
        assert f"namespace {namespace} has no ConfigMap" in done.err


def test_invalid_usage_record_is_an_error(vcctl: Run, keep: Keep, namespace: str) -> None:
    keep(namespace, shares={"user": 7})
    done = vcctl("queue", "top", "--by", "user", "--scheduler-namespace", namespace)
    assert done.code == 255
    assert f"ConfigMap {namespace}/{NAME}: shares is invalid" in done.err


def test_resource_filter_applies_to_queues_only(vcctl: Run) -> None:
    done = vcctl("queue", "top", "--by", "user", "-r", "cpu")
    assert done.code == 1
    assert "--resource applies to queues" in done.err


def test_control_characters_in_names_are_escaped() -> None:
    text = "\n".join(fairshare.ranking(Shares(60.0, user={"\x1b[2Jmallory": 0.5}), "user"))
    assert "\\x1b[2Jmallory" in text
    assert "\x1b[2J" not in text


def test_watch_redraws_after_the_scheduler_writes(
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
        # Repeat: the first write may come before the watch.
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
