"""Queues: what opens, closes and follows what."""

from typing import Any

import pytest

from hekla.controllers import queue as queues
from hekla.controllers.queue import QueueView, next_step
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


def wish(action: str, age_s: float = 0.0) -> Object:
    made = format_time(NOW - age_s)
    return {
        "metadata": {"name": "c", "namespace": "d", "creationTimestamp": made},
        "action": action,
    }


def view(of: Object, **more: Any) -> QueueView:
    return QueueView(of, NOW, **more)


def state(effects: list[queues.Effect]) -> str | None:
    return next((each.state for each in effects if isinstance(each, queues.SetState)), None)


CASES = {
    "new queues are open": (queue(state=""), [], {}, "Open"),
    "open ones stay": (queue(), [], {}, None),
    "closing an empty one": (queue(), ["CloseQueue"], {}, "Closed"),
    "closing one that has work": (queue(), ["CloseQueue"], {"groups": [group()]}, "Closing"),
    "finished groups count as work": (
        queue(), ["CloseQueue"], {"groups": [group("Completed")]}, "Closing",
    ),
    "a closing one that has emptied": (queue(state="Closing"), [], {}, "Closed"),
    "a closing one that has not": (queue(state="Closing"), [], {"groups": [group()]}, None),
    "a closing one can be opened": (queue(state="Closing"), ["OpenQueue"], {}, "Open"),
    "a closed one stays": (queue(state="Closed"), [], {}, None),
    "a closed one can be opened": (queue(state="Closed"), ["OpenQueue"], {}, "Open"),
    "an unknown one is stuck": (queue(state="Unknown"), [], {}, None),
    "an unknown one can be opened": (queue(state="Unknown"), ["OpenQueue"], {}, "Open"),
    "an unknown one can be closed": (queue(state="Unknown"), ["CloseQueue"], {}, "Closed"),
    "root cannot be closed": (queue("root"), ["CloseQueue"], {}, None),
    "it closes with its parent": (queue(), [], {"parent": queue("p", "Closing")}, "Closed"),
    "it opens with its parent": (
        queue(state="Closed", mark="true"), [], {"parent": queue("p", "Open")}, "Open",
    ),
    "what a person closed stays closed": (
        queue(state="Closed"), [], {"parent": queue("p", "Open")}, None,
    ),
    "it does not open below a closed parent": (
        queue(state="Closed"), ["OpenQueue"], {"parent": queue("p", "Closed")}, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_queue_states_follow_wishes_parents_and_groups(case: str) -> None:
    of, wishes, more, want_state = CASES[case]
    effects = next_step(view(of, commands=[wish(each) for each in wishes], **more))
    assert want_state == state(effects)


def test_a_wish_that_cannot_be_granted_is_refused_in_the_end() -> None:
    below = view(queue(state="Closed"), parent=queue("p", "Closed"), commands=[wish("OpenQueue")])
    assert [queues.Wake(1.0)] == next_step(below)
    late = view(
        queue(state="Closed"), parent=queue("p", "Closed"), commands=[wish("OpenQueue", 20)]
    )
    refusal, finish = next_step(late)
    assert "its parent 'p' is closed; open that first" in refusal.why
    assert isinstance(finish, queues.FinishCommand)


def test_the_mark_is_set_before_closing_and_taken_back_after_opening() -> None:
    closing = next_step(view(queue(), parent=queue("p", "Closed")))
    assert [queues.PatchQueue, queues.SetState] == [type(each) for each in closing]
    opening = next_step(view(queue(state="Closed", mark="true"), parent=queue("p")))
    assert [queues.SetState, queues.PatchQueue] == [type(each) for each in opening]


def test_groups_are_counted_by_phase() -> None:
    groups = [group("Running"), group("Running"), group("Inqueue"), group("")]
    (counted,) = next_step(view(queue(), groups=groups))
    assert (counted.counts) == {
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


async def wish_for(cluster: Cluster, action: str, name: str) -> None:
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


async def test_a_queue_closes_and_opens_with_those_below_it(cluster: Cluster) -> None:
    await state_is(cluster, "default", "Open")
    for name, parent in (("team", "root"), ("a", "team"), ("b", "team")):
        body = {"metadata": {"name": name}, "spec": {"parent": parent}}
        await cluster.client.create(QUEUES, body)
        await state_is(cluster, name, "Open")
    await wish_for(cluster, "CloseQueue", "b")
    await state_is(cluster, "b", "Closed")
    await wish_for(cluster, "CloseQueue", "team")
    await state_is(cluster, "a", "Closed")
    await wish_for(cluster, "OpenQueue", "team")
    await state_is(cluster, "a", "Open")
    await cluster.settle()
    await state_is(cluster, "b", "Closed")
    assert (await cluster.client.list(COMMANDS)).items == []


async def test_a_closing_queue_lets_its_jobs_restart_and_closes_after_them(
    cluster: Cluster,
) -> None:
    await cluster.client.create(QUEUES, {"metadata": {"name": "q"}, "spec": {}})
    await state_is(cluster, "q", "Open")
    policies = [{"event": "PodFailed", "action": "RestartJob"}]
    await cluster.client.create(JOBS, job("train", queue="q", policies=policies))
    await cluster.has_pods(2, "Pending")
    await cluster.run()
    await cluster.reaches("Running")
    await wish_for(cluster, "CloseQueue", "q")
    await state_is(cluster, "q", "Closing")
    await cluster.fail("train-worker-0")
    await cluster.has_pods(2, "Pending")
    await cluster.run()
    await cluster.reaches("Running")
    await cluster.succeed()
    await cluster.reaches("Completed")
    await state_is(cluster, "q", "Closed")
