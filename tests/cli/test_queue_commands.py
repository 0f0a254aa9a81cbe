"""Volcano's five verbs on queues, all fields at creation, and the tree of `queue top`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from hekla.api.fairshare import QueueShare
from hekla.cli.vcctl import queue_top
from hekla.kube.resources import COMMANDS, CONFIGMAPS, JOBS, PODGROUPS, QUEUES
from hekla.kube.sync_client import SyncClient
from hekla.units.quantity import parse_quantity
from tests.api.test_volcano_jobs import job
from tests.cli.conftest import Run

MakeQueue = Callable[..., dict[str, Any]]


@pytest.fixture
def make_queue(admin: SyncClient) -> MakeQueue:
    def make(name: str, *, state: str = "Open", **spec: Any) -> dict[str, Any]:
        body = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": spec,
        }
        admin.create(QUEUES, body)
        return admin.patch_status(QUEUES, name, {"state": state})

    return make


def _group(admin: SyncClient, namespace: str, name: str, queue: str, phase: str) -> None:
    body = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"queue": queue, "minMember": 2},
        "status": {"phase": phase},
    }
    admin.create(PODGROUPS, body, namespace=namespace)


def test_create_with_name_and_weight(vcctl: Run, admin: SyncClient, unique: str) -> None:
    done = vcctl("queue", "create", "-n", unique, "-w", "2")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert admin.get(QUEUES, unique)["spec"]["weight"] == 2


def test_create_takes_every_field(vcctl: Run, admin: SyncClient, unique: str) -> None:
    parent, child = f"{unique}-p", f"{unique}-c"
    done = vcctl(
        *("queue", "create", "-n", parent, "--deserved", "cpu=8,memory=16Gi"),
        *("--guarantee", "cpu=4", "--capability", "cpu=16,memory=32Gi"),
    )
    assert done.code == 0, done.err
    done = vcctl(
        *("queue", "create", child, "--parent", parent, "--deserved", "cpu=2", "--priority", "7"),
        *("--not-reclaimable", "--dequeue-strategy", "fifo", "--label", "team=ml"),
        *("--annotation", "a/b=c"),
    )
    assert done.code == 0, done.err
    found = admin.get(QUEUES, child)
    assert found["spec"] == {
        "weight": 1,
        "reclaimable": False,
        "priority": 7,
        "parent": parent,
        "deserved": {"cpu": "2"},
        "dequeueStrategy": "fifo",
    }
    assert found["metadata"]["labels"] == {"team": "ml"}
    assert found["metadata"]["annotations"] == {"a/b": "c"}


def test_a_queue_may_be_created_closed(vcctl: Run, admin: SyncClient, unique: str) -> None:
    assert vcctl("queue", "create", "-n", unique, "-S", "Closed").code == 0
    asked = [one for one in admin.list(COMMANDS) if one["target"]["name"] == unique]
    assert [(one["action"], one["metadata"]["namespace"]) for one in asked] == [
        ("CloseQueue", "default")
    ]


def test_invalid_shares_are_rejected_before_sending(vcctl: Run, unique: str) -> None:
    done = vcctl("queue", "create", "-n", unique, "--deserved", "cpu=1", "--guarantee", "cpu=2")
    assert done.code == 255
    assert f'Queue "{unique}" is invalid: spec.deserved[cpu]' in done.err


def test_list_and_get_count_podgroups_by_their_phase(
    vcctl: Run, make_queue: MakeQueue, admin: SyncClient, unique: str, namespace: str
) -> None:
    make_queue(unique, weight=3)
    for index, phase in enumerate(("Inqueue", "Running", "Running", "Completed")):
        _group(admin, namespace, f"g{index}", unique, phase)
    header = "Name                     Weight  State   Parent  Inqueue Pending Running Unknown "
    row = f"{unique:<25}3       Open            1       0       2       0       1       "
    assert vcctl("queue", "get", "-n", unique).lines == [f"{header}Completed", row]
    listed = vcctl("queue", "list").lines
    # Other tests' queues may have widened the columns.
    assert listed[0].split() == [*header.split(), "Completed"]
    assert row.split() in [line.split() for line in listed]


def test_a_long_name_does_not_run_into_the_next_column(
    vcctl: Run, make_queue: MakeQueue, unique: str
) -> None:
    name = f"{unique}-with-a-name-longer-than-the-column"
    make_queue(name)
    assert vcctl("queue", "get", name).lines[1].startswith(f"{name} 1 ")


@pytest.mark.parametrize(
    ("args", "want"),
    {
        "delete": (("delete",), "Failed to delete queue: queue name must be specified"),
        "get": (
            ("get",),
            "Failed to get queue: name is mandatory to get the particular queue details",
        ),
        "operate": (("operate",), "Failed to operate queue: queue name must be specified"),
        "no action": (
            ("operate", "-n", "default"),
            "Failed to operate queue: action can not be null",
        ),
        "unknown action": (
            ("operate", "-n", "default", "-a", "shut"),
            "Failed to operate queue: action shut invalid, valid actions are open, close and "
            "update",
        ),
        "update without weight": (
            ("operate", "-n", "default", "-a", "update"),
            "Failed to operate queue: when update queue default, weight must be specified, the "
            "value must be greater than 0",
        ),
        "no such queue": (
            ("get", "-n", "nowhere-at-all"),
            'Failed to get queue: queues.scheduling.volcano.sh "nowhere-at-all" not found',
        ),
    }.values(),
)
def test_failures_have_volcanos_messages(vcctl: Run, args: tuple[str, ...], want: str) -> None:
    done = vcctl("queue", *args)
    assert (done.code, done.out) == (255, "")
    assert done.err.startswith(f"{want}\n")


def test_operate_sends_commands_and_changes_the_weight(
    vcctl: Run, make_queue: MakeQueue, admin: SyncClient, unique: str
) -> None:
    make_queue(unique)
    for action in ("open", "close"):
        done = vcctl("queue", "operate", "-n", unique, "-a", action)
        assert (done.code, done.out) == (0, "")
    asked = [one for one in admin.list(COMMANDS) if one["target"]["name"] == unique]
    assert sorted(one["action"] for one in asked) == ["CloseQueue", "OpenQueue"]
    assert vcctl("queue", "operate", "-n", unique, "-a", "update", "-w", "5").code == 0
    assert admin.get(QUEUES, unique)["spec"]["weight"] == 5


def test_delete_removes_a_queue_silently(
    vcctl: Run, make_queue: MakeQueue, admin: SyncClient, unique: str
) -> None:
    make_queue(unique, state="Closed")
    done = vcctl("queue", "delete", "-n", unique)
    assert (done.code, done.out) == (0, "")
    assert admin.find(QUEUES, unique) is None


def test_forced_delete_counts_and_deletes_the_jobs_of_a_queue(
    vcctl: Run, make_queue: MakeQueue, admin: SyncClient, unique: str, namespace: str
) -> None:
    make_queue(unique)
    for name in ("a", "b"):
        admin.create(
            JOBS, {**job(name=name, queue=unique), "metadata": {"name": name}}, namespace=namespace
        )
    _group(admin, namespace, "g", unique, "Pending")
    done = vcctl("queue", "delete", "-n", unique, "--force")
    counted = f"queue {unique} has 3 unfinished jobs (3 pending): {namespace}/a"
    assert done.code == 0
    assert done.err.startswith(f"Warning: {counted}")
    assert admin.find(QUEUES, unique) is None
    assert not admin.list(JOBS, namespace=namespace).items
    assert not admin.list(PODGROUPS, namespace=namespace).items


def test_misspelt_queue_name_gets_a_suggestion(
    vcctl: Run, make_queue: MakeQueue, unique: str
) -> None:
    make_queue(f"{unique}-training")
    done = vcctl("queue", "get", "-n", f"{unique}-trainign")
    assert f'did you mean "{unique}-training"' in done.err


def test_wide_shows_the_resources_of_a_queue(
    vcctl: Run, make_queue: MakeQueue, unique: str
) -> None:
    make_queue(unique, deserved={"cpu": "4"})
    lines = vcctl("queue", "get", unique, "-o", "wide").lines
    assert re.search(r"Completed +Allocated +Deserved +Guarantee +Capability", lines[0])
    assert re.search(r"<none> +cpu=4 +<none> +<none>", lines[1])


def _queue(name: str, parent: str = "", used: Any = None, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"weight": 1, "parent": parent, **spec},
        "status": {"state": "Open", "allocated": used or {}},
    }


def test_top_shows_deserved_share_and_usage_over_time() -> None:
    queues = [{"metadata": {"name": "ml"}, "spec": {"weight": 3}, "status": {}}]
    pasts = {"ml": QueueShare(0.256, {"cpu": "6"})}
    text = "\n".join(queue_top.tree(queues, {}, (), pasts))
    assert "weight 3, usage 25.6% of the cluster" in text
    assert "0 of 6 deserved" in text


def test_top_shows_used_deserved_and_borrowed_resources() -> None:
    queues = [
        _queue("root"),
        _queue("research"),
        _queue(
            "ml",
            "research",
            {"cpu": "12"},
            deserved={"cpu": "8"},
            guarantee={"resource": {"cpu": "2"}},
            capability={"cpu": "16"},
        ),
        _queue("idle", "research", capability={"cpu": "4"}),
    ]
    lines = list(queue_top.tree(queues, {}))
    assert [line.split()[0] for line in lines if "weight" in line] == ["root", "└─", "├─", "└─"]
    (bar,) = [line for line in lines if "borrowed" in line]
    assert "12 of 8 deserved, 4 borrowed, 2 guaranteed, max 16" in bar
    assert bar.count(queue_top.OWN) == 12
    assert bar.count(queue_top.BORROWED) == 6
    assert bar.count(queue_top.FREE) == 6


def test_bar_without_capability_is_as_long_as_the_cluster() -> None:
    queues = [_queue("root"), _queue("ml", used={"cpu": "4"})]
    cluster = {"cpu": parse_quantity("16")}
    (bar,) = [line for line in queue_top.tree(queues, {}, cluster=cluster) if "used" in line]
    assert "4 used, 16 in the cluster" in bar
    assert (bar.count(queue_top.OWN), bar.count(queue_top.FREE)) == (6, 18)


def test_deserved_is_shown_only_if_the_plugin_in_force_uses_it() -> None:
    queues = [_queue("ml", used={"cpu": "4"}, deserved={"cpu": "2"}, capability={"cpu": "8"})]
    shown = "\n".join(queue_top.tree(queues, {}, has_deserved=True))
    assert "4 of 2 deserved, 2 borrowed, max 8" in shown
    hidden = "\n".join(queue_top.tree(queues, {}, has_deserved=False))
    assert "4 used, max 8" in hidden
    assert hidden.count(queue_top.BORROWED) == 0


CONFIGURED = {
    "no ConfigMap: the default has proportion": (None, False, False),
    "proportion": ("tiers:\n- plugins:\n  - name: proportion\n", False, False),
    "capacity": ("tiers:\n- plugins:\n  - name: gang\n  - name: capacity\n", True, False),
    "capacity in a comment": ("tiers:\n- plugins: # - name: capacity\n", False, False),
    "capacity with a hierarchy": (
        "tiers:\n- plugins:\n  - name: capacity\n    enableHierarchy: true\n",
        True,
        True,
    ),
    "a hierarchy that is off": (
        "tiers:\n- plugins:\n  - name: capacity\n    enableHierarchy: false\n",
        True,
        False,
    ),
}


@pytest.mark.parametrize("case", CONFIGURED)
def test_plugin_in_force_is_read_from_the_configuration(
    case: str, admin: SyncClient, namespace: str
) -> None:
    text, want_deserved, want_hierarchy = CONFIGURED[case]
    if text is not None:
        name = "volcano-scheduler-configmap"
        body = {"metadata": {"name": name}, "data": {"volcano-scheduler.conf": text}}
        admin.create(CONFIGMAPS, body, namespace=namespace)
    assert queue_top.uses_deserved(admin, namespace) == want_deserved
    note = queue_top.unused_parents(admin, namespace, [_queue("a", "b")])
    assert ("have no effect" in note) != want_hierarchy
    assert queue_top.unused_parents(admin, namespace, [_queue("a", "root")]) == ""


def test_tree_ends_with_cyclic_or_missing_parents() -> None:
    circle = [_queue("a", "b"), _queue("b", "a"), _queue("c", "gone")]
    assert any("c" in line for line in queue_top.tree(circle, {}))


def test_bar_shows_small_values() -> None:
    drawn = queue_top.bar(parse_quantity("1m"), parse_quantity("1000"))
    assert drawn.count(queue_top.OWN) == 1
    assert queue_top.bar(parse_quantity("0"), None) == queue_top.FREE * queue_top.BAR


def test_top_shows_the_queues_of_a_cluster(vcctl: Run, make_queue: MakeQueue, unique: str) -> None:
    make_queue(unique, capability={"cpu": "4"})
    done = vcctl("queue", "top", "-r", "cpu")
    assert done.code == 0
    assert f"─ {unique}" in done.out
    assert "0 used, max 4" in done.out


def test_a_user_of_one_namespace_still_sees_the_queues(
    vcctl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hekla.kube.errors import Forbidden

    listing = SyncClient.list

    def guarded(self: SyncClient, resource: Any, **more: Any) -> Any:
        if resource is PODGROUPS:
            raise Forbidden(403, "Forbidden", "no")
        return listing(self, resource, **more)

    monkeypatch.setattr(SyncClient, "list", guarded)
    done = vcctl("queue", "list")
    assert done.code == 0
    (line,) = [line for line in done.lines if line.startswith("default ")]
    assert line.split()[-5:] == ["-"] * 5
    assert "you may not list podgroups of all namespaces" in done.err
