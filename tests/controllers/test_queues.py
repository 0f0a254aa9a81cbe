"""Queue states and their dependence on commands, parents and PodGroups."""

from typing import Any

import pytest

from hekla.controllers.effects import RequeueAfter
from hekla.controllers.queue import state as queues
from hekla.controllers.queue.state import QueueView, next_step
from hekla.kube.resources import COMMANDS, JOBS, QUEUES
from hekla.units.objects import Object
from hekla.units.timestamps import format_time

from .builders import NOW
from .cluster import Cluster
from .manifests import job


def queue(name: str = "q", state: str = "Open", mark: str | None = None, **status: int) -> Object:
    metadata: Object = {"name": name, "uid": name}
    if mark is not None:
        metadata["annotations"] = {"volcano.sh/closed-by-parent": mark}
    return {
        "metadata": metadata,
        "spec": {"parent": "root"},
        "status": {"state": state, **status},
    }


def group(phase: str = "Running") -> Object:
    return {"metadata": {"name": "g"}, "spec": {}, "status": {"phase": phase}}


def command(action: str, age_s: float = 0.0) -> Object:
    made = format_time(NOW - age_s)
    return {
        "metadata": {"name": "c", "namespace": "d", "creationTimestamp": made},
        "action": action,
    }


def view(of: Object, **more: Any) -> QueueView:
    return QueueView(of, NOW, **more)


def state(effects: list[queues.Effect]) -> str | None:
    return next((each.state for each in effects if isinstance(each, queues.SetState)), None)


CASES: dict[str, tuple[Object, list[str], Object, str | None]] = {
    "a new queue is opened": (queue(state=""), [], {}, "Open"),
    "an open queue stays open": (queue(), [], {}, None),
    "an empty queue closes": (queue(), ["CloseQueue"], {}, "Closed"),
    "a queue with groups is closing": (queue(), ["CloseQueue"], {"groups": [group()]}, "Closing"),
    "finished groups count as groups": (
        queue(), ["CloseQueue"], {"groups": [group("Completed")]}, "Closing",
    ),
    "a closing queue without groups is closed": (queue(state="Closing"), [], {}, "Closed"),
    "closing with groups stays closing": (queue(state="Closing"), [], {"groups": [group()]}, None),
    "a closing queue can be opened": (queue(state="Closing"), ["OpenQueue"], {}, "Open"),
    "a closed queue stays closed": (queue(state="Closed"), [], {}, None),
    "a closed queue can be opened": (queue(state="Closed"), ["OpenQueue"], {}, "Open"),
    "an Unknown queue stays": (queue(state="Unknown"), [], {}, None),
    "an Unknown queue can be opened": (queue(state="Unknown"), ["OpenQueue"], {}, "Open"),
    "an Unknown queue can be closed": (queue(state="Unknown"), ["CloseQueue"], {}, "Closed"),
    "root cannot be closed": (queue("root"), ["CloseQueue"], {}, None),
    "a queue closes with its parent": (queue(), [], {"parent": queue("p", "Closing")}, "Closed"),
    "a queue opens with its parent": (
        queue(state="Closed", mark="true"), [], {"parent": queue("p", "Open")}, "Open",
    ),
    "a queue closed by a user stays closed": (
        queue(state="Closed"), [], {"parent": queue("p", "Open")}, None,
    ),
    "a queue does not open below a closed parent": (
        queue(state="Closed"), ["OpenQueue"], {"parent": queue("p", "Closed")}, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_queue_state_follows_commands_parent_and_groups(case: str) -> None:
    of, actions, more, want_state = CASES[case]
    effects = next_step(view(of, commands=[command(each) for each in actions], **more))
    assert want_state == state(effects)


def test_open_command_below_a_closed_parent_is_rejected_after_a_timeout() -> None:
    below = view(
        queue(state="Closed"), parent=queue("p", "Closed"), commands=[command("OpenQueue")]
    )
    assert [RequeueAfter(1.0)] == next_step(below)
    late = view(
        queue(state="Closed"), parent=queue("p", "Closed"), commands=[command("OpenQueue", 20)]
    )
    rejection, finish = next_step(late)
    assert isinstance(rejection, queues.RejectCommand)
    assert "its parent 'p' is closed; open it first" in rejection.reason
    assert isinstance(finish, queues.FinishCommand)


def test_closed_by_parent_is_set_before_closing_and_reset_after_opening() -> None:
    closing = next_step(view(queue(), parent=queue("p", "Closed")))
    assert [queues.PatchQueue, queues.SetState] == [type(each) for each in closing]
    opening = next_step(view(queue(state="Closed", mark="true"), parent=queue("p")))
    assert [queues.SetState, queues.PatchQueue] == [type(each) for each in opening]


def test_groups_are_counted_by_phase() -> None:
    groups = [group("Running"), group("Running"), group("Inqueue"), group("")]
    (counted,) = next_step(view(queue(), groups=groups))
    assert isinstance(counted, queues.SetCounts)
    assert counted.counts == {
        "pending": 1,
        "inqueue": 1,
        "running": 2,
        "unknown": 0,
        "completed": 0,
    }
    assert next_step(view(queue(running=2, inqueue=1, pending=1), groups=groups)) == []


def test_a_queue_without_a_parent_gets_root() -> None:
    orphan = queue()
    orphan["spec"] = {}
    assert [queues.PatchQueue({"spec": {"parent": "root"}})] == next_step(view(orphan))


async def create_command(cluster: Cluster, action: str, name: str) -> None:
    target = await cluster.client.get(QUEUES, name)
    reference = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "name": name,
        "uid": target["metadata"]["uid"],
    }
    body = {
        "metadata": {"generateName": f"{name}-", "namespace": "default"},
        "action": action,
        "target": reference,
    }
    await cluster.client.create(COMMANDS, body)


async def state_is(cluster: Cluster, name: str, want_state: str) -> None:
    async def there() -> bool:
        found = await cluster.client.get(QUEUES, name)
        return (found.get("status") or {}).get("state") == want_state

    await cluster.until(there, f"{name} is {want_state}")


async def test_queue_closes_and_opens_with_its_children(cluster: Cluster) -> None:
    await state_is(cluster, "default", "Open")
    for name, parent in (("team", "root"), ("a", "team"), ("b", "team")):
        body = {"metadata": {"name": name}, "spec": {"parent": parent}}
        await cluster.client.create(QUEUES, body)
        await state_is(cluster, name, "Open")
    await create_command(cluster, "CloseQueue", "b")
    await state_is(cluster, "b", "Closed")
    await create_command(cluster, "CloseQueue", "team")
    await state_is(cluster, "a", "Closed")
    await create_command(cluster, "OpenQueue", "team")
    await state_is(cluster, "a", "Open")
    await cluster.settle()
    await state_is(cluster, "b", "Closed")
    assert (await cluster.client.list(COMMANDS)).items == []


async def test_closing_queue_lets_its_jobs_restart_and_closes_after_them(
    cluster: Cluster,
) -> None:
    await cluster.client.create(QUEUES, {"metadata": {"name": "q"}, "spec": {}})
    await state_is(cluster, "q", "Open")
    policies = [{"event": "PodFailed", "action": "RestartJob"}]
    await cluster.client.create(JOBS, job("train", queue="q", policies=policies))
    await cluster.has_pods(2, "Pending")
    await cluster.run()
    await cluster.reaches("Running")
    await create_command(cluster, "CloseQueue", "q")
    await state_is(cluster, "q", "Closing")
    await cluster.fail("train-worker-0")
    await cluster.has_pods(2, "Pending")
    await cluster.run()
    await cluster.reaches("Running")
    await cluster.succeed()
    await cluster.reaches("Completed")
    await state_is(cluster, "q", "Closed")
