"""Commands that reach a node: logs and exec through a node agent, taint, cordon and drain."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from hekla.apiserver.endpoints.nodeproxy import Channels, LogRequest, StreamRequest
from hekla.units.objects import Object
from tests.apiserver.kubectl.conftest import Kubectl
from tests.apiserver.kubectl.manifests import node, pod
from tests.apiserver.threads import ServerThread

STDIN, STDOUT, STDERR, CLOSE = 0, 1, 2, 255


class FakeAgent:
    """A node agent whose containers print three lines and run a few commands."""

    def __init__(self) -> None:
        self.requested: list[LogRequest | StreamRequest] = []

    async def logs(self, pod: Object, request: LogRequest) -> AsyncIterator[bytes]:
        self.requested.append(request)
        lines = [f"{pod['metadata']['name']}/{request.container} line {n}\n" for n in range(3)]
        for line in lines if request.tail_lines is None else lines[-request.tail_lines :]:
            yield line.encode()

    def kept_log(self, metadata: Object, request: LogRequest) -> None:
        return None

    async def stream(self, pod: Object, request: StreamRequest, channels: Channels) -> Object:
        self.requested.append(request)
        match request.command:
            case ("echo", *words):
                await channels.send(STDOUT, " ".join(words).encode() + b"\n")
            case ("complain", *words):
                await channels.send(STDERR, " ".join(words).encode() + b"\n")
            case ("cat",):
                while (piece := await channels.receive()) is not None:
                    channel, data = piece
                    if channel == CLOSE:
                        break
                    if channel == STDIN:
                        await channels.send(STDOUT, data)
            case ("exit", code):
                return {
                    "kind": "Status",
                    "apiVersion": "v1",
                    "metadata": {},
                    "status": "Failure",
                    "reason": "NonZeroExitCode",
                    "message": f"command terminated with exit code {code}",
                    "details": {"causes": [{"reason": "ExitCode", "message": code}]},
                }
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


@pytest.fixture
def agent(cluster: ServerThread, unique: str) -> FakeAgent:
    """A node agent for a node with the test's name."""
    made = FakeAgent()
    cluster.create("v1", "Node", node(unique))
    cluster.server.nodes.register(unique, made)
    return made


def test_logs_of_the_only_container(kubectl: Kubectl, agent: FakeAgent, unique: str) -> None:
    kubectl.create(pod("p", nodeName=unique))
    assert kubectl("logs", "p") == "p/main line 0\np/main line 1\np/main line 2\n"
    assert kubectl("logs", "p", "--tail=1") == "p/main line 2\n"
    kubectl("logs", "p", "--previous", "--timestamps", "--since=5m", "--limit-bytes=100")
    last = agent.requested[-1]
    assert isinstance(last, LogRequest)
    assert (last.previous, last.timestamps, last.since_s, last.limit_bytes) == (
        True, True, 300, 100,
    )  # fmt: skip


def test_logs_of_one_of_several_containers(kubectl: Kubectl, agent: FakeAgent, unique: str) -> None:
    containers = [{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]
    kubectl.create(pod("p", labels={"app": "x"}, nodeName=unique, containers=containers))
    assert kubectl("logs", "p", "-c", "b", "--tail=1") == "p/b line 2\n"
    everything = kubectl("logs", "-l", "app=x", "--all-containers", "--prefix")
    assert "[pod/p/a] p/a line 0" in everything
    assert "[pod/p/b] p/b line 2" in everything
    assert "container nope is not valid for pod p" in kubectl.fails("logs", "p", "-c", "nope")


def test_logs_of_an_unbound_pod_are_refused(kubectl: Kubectl) -> None:
    kubectl.create(pod("p"), pod("q", nodeName="no-such-node"))
    assert "is waiting to start" in kubectl.fails("logs", "p")
    assert "no node agent for node 'no-such-node' is connected" in kubectl.fails("logs", "q")


def test_exec_passes_output_errors_and_the_exit_code(
    kubectl: Kubectl, agent: FakeAgent, unique: str
) -> None:
    kubectl.create(pod("p", nodeName=unique))
    assert kubectl("exec", "p", "--", "echo", "hello", "world") == "hello world\n"
    done = kubectl.run("exec", "p", "--", "complain", "bitterly")
    assert (done.returncode, done.stderr) == (0, "bitterly\n")
    done = kubectl.run("exec", "p", "--", "exit", "42")
    assert done.returncode == 42
    assert "command terminated with exit code 42" in done.stderr


def test_exec_passes_input_through(kubectl: Kubectl, agent: FakeAgent, unique: str) -> None:
    kubectl.create(pod("p", nodeName=unique))
    text = "line\n" * 20_000
    assert kubectl("exec", "-i", "p", "--", "cat", input=text) == text
    last = agent.requested[-1]
    assert isinstance(last, StreamRequest)
    assert (last.stdin, last.stdout, last.stderr, last.tty) == (True, True, True, False)


def test_refused_exec_reports_the_reason(kubectl: Kubectl, agent: FakeAgent, unique: str) -> None:
    kubectl.create(pod("p"), pod("q", nodeName=unique))
    assert "pod p does not have a host assigned" in kubectl.fails("exec", "p", "--", "ls")
    said = kubectl.fails("exec", "q", "-c", "nope", "--", "ls")
    assert "container nope" in said
    kubectl("patch", "pod", "q", "--subresource=status", "-p", '{"status":{"phase":"Succeeded"}}')
    said = kubectl.fails("exec", "q", "--", "ls")
    assert "cannot exec into a container in a completed pod; current phase is Succeeded" in said
    said = kubectl.fails("exec", "q", "--as=ann", "--", "ls")
    assert "forbidden" in said


def test_attach_joins_the_running_container(
    kubectl: Kubectl, agent: FakeAgent, unique: str
) -> None:
    kubectl.create(pod("p", nodeName=unique))
    kubectl("attach", "p")
    last = agent.requested[-1]
    assert isinstance(last, StreamRequest)
    assert (last.verb, last.container) == ("attach", "main")


def test_taints_are_set_and_removed(kubectl: Kubectl, unique: str) -> None:
    kubectl.create(node(unique))
    assert kubectl("taint", "node", unique, "gpu=yes:NoSchedule") == f"node/{unique} tainted\n"
    taints = kubectl.json("get", "node", unique)["spec"]["taints"]
    assert taints == [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    assert kubectl("taint", "node", unique, "gpu-") == f"node/{unique} untainted\n"
    assert "taints" not in kubectl.json("get", "node", unique)["spec"]


def test_cordoned_node_shows_scheduling_disabled(kubectl: Kubectl, unique: str) -> None:
    kubectl.create(node(unique))
    assert kubectl("cordon", unique) == f"node/{unique} cordoned\n"
    (row,) = kubectl.rows("get", "node", unique)
    assert row["STATUS"] == "Ready,SchedulingDisabled"
    assert kubectl("cordon", unique) == f"node/{unique} already cordoned\n"
    assert kubectl("uncordon", unique) == f"node/{unique} uncordoned\n"
    (row,) = kubectl.rows("get", "node", unique)
    assert row["STATUS"] == "Ready"


def test_drain_evicts_the_pods_of_a_node(kubectl: Kubectl, unique: str) -> None:
    kubectl.create(node(unique), pod("p", nodeName=unique))
    said = kubectl("drain", unique, "--force", "--grace-period=0")
    assert "pod/p evicted" in said
    assert f"node/{unique} drained" in said
    assert kubectl("get", "pods", "-o", "name") == ""
