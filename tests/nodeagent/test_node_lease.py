"""The lease of a node, and nodes of an earlier start."""

from __future__ import annotations

from pathlib import Path

from hekla.apiserver.server import ApiServer, Config
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.resources import LEASES, NODES, PODS
from hekla.nodeagent.gone_nodes import remove_gone_nodes
from hekla.nodeagent.node_lease import NodeLease
from hekla.units.clock import ManualClock
from tests.nodeagent.conftest import NODE, Machine


async def test_agent_holds_the_lease_of_its_node(machine: Machine) -> None:
    async with machine.client.watch(LEASES, namespace="kube-node-lease") as events:
        async for event in events:
            lease = event.object
            break
    node = await machine.client.get(NODES, NODE)
    assert lease["metadata"]["name"] == NODE
    assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
    assert lease["spec"]["leaseDurationSeconds"] == 40


async def test_lease_is_created_once_and_then_renewed(machine: Machine) -> None:
    clock = ManualClock()
    node = await machine.client.create(NODES, {"metadata": {"name": "other"}})
    lease = NodeLease(machine.client, clock, node)
    times = []
    for _ in range(2):
        await lease.renew()
        found = await machine.client.get(LEASES, "other", namespace="kube-node-lease")
        times.append(found["spec"]["renewTime"])
        clock.skip(10)
    assert times == ["2023-11-14T22:13:20.000000Z", "2023-11-14T22:13:30.000000Z"]


async def test_agent_reports_a_node_that_counted_as_lost_as_ready(machine: Machine) -> None:
    await machine.run_pod("p", "true")
    await machine.ended("p")
    assert machine.agent is not None
    lost = [{"type": "Ready", "status": "Unknown"}]
    await machine.client.patch_status(NODES, NODE, {"conditions": lost})
    while True:  # until the watch of the agent has it
        await machine.agent._report_ready()
        found = await machine.client.get(NODES, NODE)
        if found["status"]["conditions"][0]["status"] == "True":
            break


async def test_nodes_of_an_earlier_start_go_with_their_unfinished_pods(tmp_path: Path) -> None:
    async with (
        ApiServer(Config(data_dir=tmp_path)) as server,
        Client(kubeconfig.load(server.kubeconfig)) as client,
    ):
        for name, label in (
            ("sim-00000", "hekla.io/simulated"),
            ("sim-00001", "hekla.io/simulated"),
            ("old-host", "hekla.io/local-node"),
            ("foreign", "example.com/other"),
        ):
            await client.create(NODES, {"metadata": {"name": name, "labels": {label: "true"}}})
            for phase in ("Running", "Succeeded"):
                pod = f"{phase.lower()}-{name}"
                spec = {"nodeName": name, "containers": [{"name": "main", "image": "host"}]}
                metadata = {"name": pod, "namespace": "default"}
                await client.create(PODS, {"metadata": metadata, "spec": spec})
                await client.patch_status(PODS, pod, {"phase": phase}, namespace="default")
        await remove_gone_nodes(client, ["sim-00000"])
        nodes = {node["metadata"]["name"] for node in await client.list(NODES)}
        assert nodes == {"sim-00000", "foreign"}
        running = {
            pod["metadata"]["name"]
            for pod in await client.list(PODS)
            if pod["status"]["phase"] == "Running"
        }
        assert running == {"running-sim-00000", "running-foreign"}
