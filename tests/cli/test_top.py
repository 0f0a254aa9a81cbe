"""`hekla top`: what it shows, what it hides, and its screen."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from tools.waiting import until

from hekla.api.devices import DeviceAllocation, encode, register
from hekla.api.wellknown import (
    GROUP_NAME,
    NODE_VGPU_REGISTER,
    SUBMITTED_BY,
    VGPU_IDS_NEW,
    VGPU_MEMORY,
    VGPU_NUMBER,
)
from hekla.cli.capacity import screen
from hekla.cli.capacity.cluster import Scope
from hekla.cli.capacity.overview import Overview, group_info, job_info, overview, queue_info
from hekla.cli.capacity.page import fitted, page
from hekla.cli.capacity.usage import node_info, node_uses, pod_use
from hekla.kube.resources import (
    CLUSTER_ROLES,
    PODGROUPS,
    QUEUES,
    ROLE_BINDINGS,
    SERVICE_ACCOUNTS,
)
from hekla.kube.sync_client import SyncClient
from hekla.units.objects import Object
from tests.cli.conftest import Run

NOW = 1_800_000_000.0
CREATED = "2027-01-15T08:00:00Z"


def node(name: str, *, drained: bool = False) -> Object:
    return {
        "metadata": {"name": name, "creationTimestamp": CREATED},
        "spec": {"unschedulable": drained},
        "status": {
            "allocatable": {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "2", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, group: str, *, on: str = "", phase: str = "Pending", cpu: str = "1") -> Object:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    metadata = {"name": name, "namespace": "ml", "uid": name, "creationTimestamp": CREATED}
    return {
        "metadata": {**metadata, "annotations": {GROUP_NAME: group}},
        "spec": {"nodeName": on, "containers": [container]},
        "status": {"phase": phase},
    }


def group(name: str, *, phase: str = "Inqueue", why: str = "", user: str = "") -> Object:
    condition = {"type": "Unschedulable", "status": "True", "message": why}
    return {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "creationTimestamp": CREATED,
            "annotations": {SUBMITTED_BY: user} if user else {},
            "ownerReferences": [{"controller": True, "uid": f"job-{name}", "name": f"{name}-job"}],
        },
        "spec": {"queue": "gpus", "minMember": 2, "minResources": {"cpu": "2"}},
        "status": {"phase": phase, "conditions": [condition] if why else []},
    }


def job(name: str, phase: str) -> Object:
    metadata = {"name": f"{name}-job", "namespace": "ml", "uid": f"job-{name}"}
    spec = {"queue": "gpus", "tasks": [{"replicas": 2}, {"replicas": 1}]}
    return {"metadata": metadata, "spec": spec, "status": {"state": {"phase": phase}}}


def seen(
    nodes: list[Object],
    pods: list[Object],
    groups: list[Object],
    jobs: list[Object] | None = None,
    scope: Scope | None = None,
) -> Overview:
    uses = [pod_use(one) for one in pods]
    queue = {"metadata": {"name": "gpus"}, "spec": {"capability": {"cpu": "4"}}}
    return overview(
        node_uses(map(node_info, nodes), uses),
        uses,
        [queue_info(queue)],
        map(group_info, groups),
        map(job_info, jobs or []),
        scope or Scope(),
    )


def shown(found: Overview) -> list[str]:
    return [" ".join(line.text.split()) for line in page(found, NOW)]


def test_running_job_shows_user_pods_and_what_it_has_allocated() -> None:
    pods = [pod("a", "g", on="n1", phase="Running"), pod("b", "g", on="n2"), pod("c", "g")]
    accounts = {
        "system:serviceaccount:alice:alice": "alice",
        "system:serviceaccount:ml:ci": "ml:ci",
    }
    for name, want in accounts.items():
        lines = shown(
            seen([node("n1"), node("n2")], pods, [group("g", user=name)], [job("g", "x")])
        )
        assert f"ml/g-job gpus {want} 1/3 2 2Gi 0 0s n1 + 1" in lines
        assert "gpus Open 1 0 - - cpu 4" in lines


def test_waiting_job_shows_what_it_needs_and_the_reason_on_one_line() -> None:
    why = "2/2 tasks in gang unschedulable: 0/2 tasks fit;\nno GPU"
    lines = shown(seen([node("n1")], [pod("a", "g")], [group("g", why=why)]))
    assert "ml/g-job gpus - 2 cpu 2 0s 0/2 tasks fit; no GPU" in lines
    assert "0 running jobs" in lines


def test_bound_pod_that_cannot_start_is_a_problem_of_a_running_job() -> None:
    stuck = pod("a", "g", on="n1")
    waiting = {"reason": "ImageNotMapped", "message": "image x is not mapped"}
    stuck["status"]["containerStatuses"] = [{"name": "main", "state": {"waiting": waiting}}]
    found = seen([node("n1")], [stuck], [group("g", phase="Running")])
    assert "image x is not mapped" in found.running[0].reason


def test_job_without_a_pod_group_waits_and_ended_jobs_are_left_out() -> None:
    jobs = [job("new", "Pending"), job("old", "Completed"), job("off", "Aborted")]
    found = seen([node("n1")], [], [group("old"), group("off")], jobs)
    assert [row.name for row in found.waiting] == ["new-job"]
    assert "no PodGroup" in found.waiting[0].reason


def gpu_node(name: str) -> Object:
    made = node(name)
    gpus = [(f"GPU-{index}", 16384, "A100") for index in range(2)]
    made["metadata"]["annotations"] = {NODE_VGPU_REGISTER: register(gpus, 10)}
    return made


def with_limits(made: Object, notes: dict[str, str] | None = None, **limits: str) -> Object:
    names = {"gpu": "nvidia.com/gpu", "memory": VGPU_MEMORY, "number": VGPU_NUMBER}
    amounts = {names[key]: value for key, value in limits.items()}
    resources = made["spec"]["containers"][0]["resources"]
    resources["limits"] = amounts
    resources["requests"] |= amounts  # as the API server defaults them
    made["metadata"]["annotations"] |= notes or {}
    return made


def gpu_lines(nodes: list[Object], pods: list[Object]) -> list[str]:
    lines = shown(seen(nodes, pods, [group("g", phase="Running", user="alice")]))
    start = next(index for index, line in enumerate(lines) if line.startswith("GPUs:"))
    return lines[start : lines.index("", start)]


def test_a_line_for_each_gpu_names_the_pod_that_holds_a_share_of_it() -> None:
    share = {VGPU_IDS_NEW: encode(1, [DeviceAllocation("GPU-1", 1, 1)], "NVIDIA")}
    pods = [
        with_limits(pod("a", "g", on="n1", phase="Running"), share, number="1", memory="4096"),
        with_limits(pod("over", "g", on="n1", phase="Succeeded"), share, number="1"),
    ]
    assert gpu_lines([gpu_node("n1")], pods) == [
        "GPUs: 1 free",
        "Node GPU Memory Pod Job User Type",
        "n1 1 4Gi ml/a g-job alice A100",
        "n1 0 16Gi free - - A100",
    ]


def test_whole_gpus_are_counted_because_nodes_do_not_report_which() -> None:
    pods = [with_limits(pod("a", "g", on="n1", phase="Running"), gpu="1")]
    title, _, *rows = gpu_lines([gpu_node("n1"), node("n2")], pods)
    assert title.startswith("GPUs: 3 free (the node chooses whole GPUs")
    assert rows == [
        "n1 1 of 2 16Gi ml/a g-job alice A100",
        "n1 1 of 2 - free - - A100",
        "n2 0-1 - free - - -",
    ]


def test_annotations_of_a_pod_that_requests_no_share_are_ignored() -> None:
    share = {VGPU_IDS_NEW: encode(1, [DeviceAllocation("GPU-1", 1, 1)], "NVIDIA")}
    liar = with_limits(pod("a", "g", on="n1", phase="Running"), share)
    assert gpu_lines([gpu_node("n1")], [liar])[0] == "GPUs: 2 free"


def test_gpus_of_a_waiting_job_are_counted_once() -> None:
    waiting = group("g", why="no")
    waiting["spec"]["minResources"] = {"nvidia.com/gpu": "2", "requests.nvidia.com/gpu": "2"}
    assert any("gpu 2" in line for line in shown(seen([], [], [waiting])))


def test_deserved_is_shown_only_where_the_scheduler_uses_it() -> None:
    found = seen([], [], [])
    assert any("Deserved" in line for line in shown(found))
    found.has_deserved = False
    assert not any("Deserved" in line for line in shown(found))


def test_nodes_that_take_no_pods_come_first_then_the_fullest() -> None:
    pods = [pod("a", "g", on="n2", phase="Running")]
    found = seen([node("n1"), node("n2"), node("n3", drained=True)], pods, [])
    names = [line.split()[0] for line in shown(found) if line.startswith("n")]
    assert names[:3] == ["n3", "n2", "n1"]
    assert shown(found)[0].startswith("3 nodes: 2 Ready, 1 drained; allocated: cpu 1/24")


def test_use_is_said_to_be_requests_not_measured() -> None:
    assert "(requests; use is not measured)" in shown(seen([node("n1")], [], []))[0]


def test_what_the_caller_may_not_see_is_named() -> None:
    partial = Scope(hidden={"nodes": "forbidden"}, partial={"pods": "ml", "jobs": "ml"})
    lines = shown(seen([], [], [], scope=partial))
    assert lines[0] == (
        "nodes: hidden; jobs, pods: only those of namespace ml (you may not list the others)"
    )
    assert not any("nodes:" in line for line in lines[1:])


def test_names_of_tenants_cannot_control_the_terminal() -> None:
    assert fitted("a\x1b[2Jb\nc", 40) == "a\\u001b[2Jb c"
    assert fitted("x" * 50, 10) == "x" * 9 + "…"
    assert fitted("漢" * 10, 10) == "漢" * 4 + " …"


SCROLLS = {
    "down": (0, "jj", 2),
    "not above the first line": (1, "kk", 0),
    "not below the last page": (5, "jjjjjjj", 10),
    "arrows": (0, "\x1b[B\x1b[B\x1b[A", 1),
    "a page": (0, " ", 9),
    "page keys": (0, "\x1b[6~\x1b[5~", 0),
    "to the end and back": (3, "Gg", 0),
    "unknown keys do nothing": (3, "xyz\x1b[1;5C", 3),
    "quit": (3, "jq", None),
}


@pytest.mark.parametrize("case", SCROLLS)
def test_keys_scroll(case: str) -> None:
    first, keys, want = SCROLLS[case]
    assert screen.scrolled(first, keys, count=20, height=10) == want


@pytest.fixture
def hekla(tool: Run) -> Run:
    return lambda *args: tool("hekla", *args)


def waiting_group(admin: SyncClient, namespace: str) -> None:
    admin.create(QUEUES, {"metadata": {"name": namespace}, "spec": {"weight": 1}})
    admin.create(
        PODGROUPS,
        {"metadata": {"name": "g"}, "spec": {"minMember": 1, "queue": namespace}},
        namespace=namespace,
    )


def test_pipe_gets_one_snapshot(hekla: Run, admin: SyncClient, namespace: str) -> None:
    waiting_group(admin, namespace)
    done = hekla("top", "-n", namespace)
    assert done.code == 0
    assert "1 waiting job" in done.lines
    (found,) = json.loads(hekla("top", "-n", namespace, "-o", "json").out)["waiting"]
    assert (found["namespace"], found["name"], found["queue"]) == (namespace, "g", namespace)


@pytest.fixture
def limited(admin: SyncClient, namespace: str, config: Path) -> str:
    """A service account that may see one namespace; $KUBECONFIG is its kubeconfig."""
    admin.create(SERVICE_ACCOUNTS, {"metadata": {"name": "u"}}, namespace=namespace)
    subject = {"kind": "ServiceAccount", "name": "u", "namespace": namespace}
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}
    role = {"metadata": {"name": f"see-{namespace}"}, "rules": [rule]}
    admin.create(CLUSTER_ROLES, role)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
    admin.create(
        ROLE_BINDINGS,
        {
            "metadata": {"name": "u"},
            "roleRef": {**reference, "name": f"see-{namespace}"},
            "subjects": [subject],
        },
        namespace=namespace,
    )
    token = admin.create_token("u", namespace=namespace)
    content = yaml.safe_load(config.read_text())
    content["users"][0]["user"] = {"token": token.value}
    config.write_text(yaml.safe_dump(content))
    return namespace


def test_user_of_one_namespace_sees_that_and_what_is_hidden(
    hekla: Run, admin: SyncClient, limited: str
) -> None:
    waiting_group(admin, limited)
    done = hekla("top")
    assert done.code == 0, done.err
    assert done.lines[0] == (
        "nodes, queues: hidden; jobs, podgroups, pods: only those of namespace "
        f"{limited} (you may not list the others)"
    )
    assert "1 waiting job" in done.lines
    refused = hekla("nodes")
    assert refused.code == 255
    assert "cannot list resource" in refused.err
    assert "`hekla top` shows what you may see" in refused.err


class Terminal:
    """`hekla top` on a terminal."""

    def __init__(self, pid: int, fd: int) -> None:
        self.pid, self.fd, self.text = pid, fd, ""

    def shows(self, text: str) -> bool:
        while select.select([self.fd], [], [], 0.05)[0]:
            try:
                read = os.read(self.fd, 65536)
            except OSError:  # closed by the program's end
                break
            if not read:
                break
            self.text += read.decode(errors="replace")
        return text in self.text[self.text.rfind("\x1b[H") :]

    def press(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def resize(self, rows: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 100, 0, 0))


@contextmanager
def on_terminal(*words: str) -> Iterator[Terminal]:
    pid, fd = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.execv(sys.executable, [sys.executable, "-m", "hekla.cli.main", "top", *words])
    shown_on = Terminal(pid, fd)
    shown_on.resize(600)
    try:
        yield shown_on
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(fd)


def test_screen_follows_the_cluster_its_size_and_keys(
    config: Path, admin: SyncClient, namespace: str
) -> None:
    with on_terminal("-n", namespace) as top:
        until(lambda: top.shows("0 waiting jobs"))
        waiting_group(admin, namespace)
        until(lambda: top.shows("1 waiting job"))
        top.resize(6)
        until(lambda: top.shows("1-4 of"))
        top.press("j")
        until(lambda: top.shows("2-5 of"))
        top.press("q")
        until(lambda: top.shows("\x1b[?25h\x1b[?1049l"))
