"""A Command for a queue needs a right on that queue, and names it by UID."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hekla.controllers.command import is_for
from hekla.controllers.queue.state import QueueView, next_step
from tests.apiserver.both.conftest import Api
from tests.realkube.backends import embedded_server
from tests.security.conftest import RBAC, bind

QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with embedded_server(tmp_path_factory.mktemp("server")) as config:
        yield config


@pytest.fixture
def is_real() -> bool:
    return False


def queue(api: Api, name: str) -> dict[str, Any]:
    body = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1},
    }
    return api.post(QUEUES, body).ok()


def close(api: Api, namespace: str, name: str, uid: str, action: str = "CloseQueue") -> Any:
    kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
    body = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"generateName": "close-"},
        "target": {**kind, "name": name, "uid": uid},
        "action": action,
    }
    path = f"/apis/bus.volcano.sh/v1alpha1/namespaces/{namespace}/commands"
    return api.post(path, body)


def test_tenant_cannot_close_a_queue(api: Api, tenant: Api, namespace: str) -> None:
    uid = queue(api, f"{namespace}-q")["metadata"]["uid"]
    answer = close(tenant, namespace, f"{namespace}-q", uid)
    assert answer.status == 403
    assert f'target is the queue "{namespace}-q"' in answer.message
    assert 'cannot update resource "queues"' in answer.message


def test_holder_of_update_on_the_queue_closes_it_and_no_other(
    api: Api, tenant: Api, namespace: str
) -> None:
    mine, other = (queue(api, f"{namespace}-{n}")["metadata"] for n in ("mine", "other"))
    rule = {
        "apiGroups": ["scheduling.volcano.sh"],
        "resources": ["queues"],
        "resourceNames": [mine["name"]],
        "verbs": ["update"],
    }
    name = f"{namespace}-operator"
    api.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]}).ok()
    bind(api, namespace, name)
    close(tenant, namespace, mine["name"], mine["uid"]).ok()
    assert close(tenant, namespace, other["name"], other["uid"]).status == 403


def test_command_without_uid_gets_that_of_its_target(api: Api, namespace: str) -> None:
    uid = queue(api, f"{namespace}-q")["metadata"]["uid"]
    made = close(api, namespace, f"{namespace}-q", "").ok()
    assert made["target"]["uid"] == uid


def test_name_without_uid_is_not_enough_for_a_tenant(api: Api, tenant: Api, namespace: str) -> None:
    queue(api, f"{namespace}-q")
    assert close(tenant, namespace, f"{namespace}-q", "").status == 403


def test_command_for_a_missing_target_without_uid_is_refused(api: Api, namespace: str) -> None:
    answer = close(api, namespace, f"{namespace}-missing", "")
    assert (answer.status, "target.uid: Required value" in answer.message) == (422, True)


def _queue(uid: str) -> dict[str, Any]:
    metadata = {"name": "q", "uid": uid}
    return {"metadata": metadata, "spec": {"parent": "root"}, "status": {"state": "Open"}}


@pytest.mark.parametrize("uid", [None, "", "of-another"])
def test_controllers_ignore_a_command_that_names_another_uid(uid: str | None) -> None:
    command = {
        "metadata": {"name": "c", "namespace": "x", "uid": "1"},
        "target": {"kind": "Queue", "name": "q", "uid": uid},
        "action": "CloseQueue",
    }
    assert not is_for(command, _queue("mine"))
    assert is_for({"target": {"uid": "mine"}}, _queue("mine"))
    assert next_step(QueueView(_queue("mine"), 0.0)) == []
