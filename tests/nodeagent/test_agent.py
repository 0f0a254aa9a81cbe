"""Pods as processes on this machine."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.errors import ConnectionLost, NotFound
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import CONFIGMAPS, NODES, PODS, SECRETS
from hekla.nodeagent import pod_api, sandbox
from hekla.nodeagent.cgroups import Cgroups
from hekla.nodeagent.images import ImagesFile
from hekla.nodeagent.network import BridgeNetwork
from hekla.units.clock import SystemClock
from hekla.units.objects import Object
from tests.nodeagent.conftest import NODE, Machine, state


async def test_agent_registers_this_machine_as_a_node(machine: Machine) -> None:
    await machine.run_pod("p", "true")
    await machine.ended("p")
    node = await machine.client.get(NODES, NODE)
    assert int(node["status"]["capacity"]["cpu"]) == len(os.sched_getaffinity(0))
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == NODE


async def test_pod_runs_and_reports_its_exit_code(machine: Machine) -> None:
    await machine.run_pod("good", "sh", "-c", "echo out; echo err >&2")
    pod = await machine.ended("good")
    assert pod["status"]["phase"] == "Succeeded"
    assert state(pod)["state"]["terminated"]["reason"] == "Completed"
    assert sorted((await machine.logs("good")).splitlines()) == ["err", "out"]
    await machine.run_pod("bad", "sh", "-c", "exit 7")
    pod = await machine.ended("bad")
    assert pod["status"]["phase"] == "Failed"
    assert state(pod)["state"]["terminated"]["exitCode"] == 7
    assert state(pod)["state"]["terminated"]["reason"] == "Error"


async def test_variables_with_names_that_a_shell_does_not_allow_arrive(machine: Machine) -> None:
    names = ("discovery.type", "a-b", "1A", "ok")
    variables = [{"name": name, "value": name.upper()} for name in names]
    command = ["python3", "-c", f"import os; print([os.environ[n] for n in {names}])"]
    await machine.run_pod("p", *command, container={"env": variables})
    assert (await machine.ended("p"))["status"]["phase"] == "Succeeded"
    assert await machine.logs("p") == "['DISCOVERY.TYPE', 'A-B', '1A', 'OK']\n"


async def test_missing_command_is_named_in_the_status(machine: Machine) -> None:
    await machine.run_pod("lost", "no-such-program")
    terminated = state(await machine.ended("lost"))["state"]["terminated"]
    assert terminated["exitCode"] == 127
    assert terminated["reason"] == "StartError"
    assert "no-such-program" in terminated["message"]


async def test_unmapped_image_waits_and_its_status_says_what_to_do(machine: Machine) -> None:
    await machine.run_pod("alien", "true", container={"image": "alien:1"})
    pod = await machine.until(
        "alien",
        lambda p: "waiting" in (p["status"].get("containerStatuses") or [{}])[0].get("state", {}),
    )
    waiting = state(pod)["state"]["waiting"]
    assert waiting["reason"] == "ImageNotMapped"
    assert '"alien:1" = { host = true }' in waiting["message"]


async def test_busybox_without_a_command_runs_its_shell_and_succeeds(machine: Machine) -> None:
    await machine.run_pod("first", container={"image": "busybox"})
    assert (await machine.ended("first"))["status"]["phase"] == "Succeeded"


async def test_waiting_pod_starts_once_its_image_is_mapped(
    machine: Machine, tmp_path: Path
) -> None:
    table = tmp_path / "images.toml"
    await machine.stop_agent()
    machine.start_agent(images=ImagesFile(table))
    await machine.run_pod("alien", "echo", "at last", container={"image": "alien:1"})

    def message(pod: Object) -> str:
        statuses = pod["status"].get("containerStatuses") or [{}]
        waiting = statuses[0].get("state", {}).get("waiting") or {}
        return str(waiting.get("message", ""))

    await machine.until("alien", lambda p: "is not mapped to anything" in message(p))
    table.write_text("[images")
    await machine.until("alien", lambda p: "images.toml" in message(p) and "not used" in message(p))
    table.write_text('[images]\n"alien:*" = { host = true }\n')
    assert (await machine.ended("alien"))["status"]["phase"] == "Succeeded"
    assert await machine.logs("alien") == "at last\n"


async def test_pod_waits_for_a_missing_config_map(machine: Machine) -> None:
    variable = {"name": "V", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "k"}}}
    await machine.run_pod("p", "sh", "-c", "echo $V", container={"env": [variable]})
    pod = await machine.until("p", lambda p: "containerStatuses" in p["status"])
    assert state(pod)["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    assert "'late' does not exist" in state(pod)["state"]["waiting"]["message"]
    await machine.client.create(
        CONFIGMAPS, {"metadata": {"name": "late", "namespace": "default"}, "data": {"k": "here"}}
    )
    await machine.ended("p")
    assert await machine.logs("p") == "here\n"


@pytest.mark.parametrize("way", ["root", "user"])
async def test_volumes_are_at_their_mount_paths(
    machine: Machine, isolation: None, way: sandbox.Isolation
) -> None:
    await machine.stop_agent()
    machine.start_agent(isolate=way)
    await machine.client.create(
        CONFIGMAPS, {"metadata": {"name": "m", "namespace": "default"}, "data": {"f": "map"}}
    )
    await machine.client.create(
        SECRETS, {"metadata": {"name": "s", "namespace": "default"}, "stringData": {"k": "key"}}
    )
    mounts: list[Object] = [
        {"name": "m", "mountPath": "/etc/hekla-mount-test"},
        {"name": "s", "mountPath": "/run/hekla-mount-test", "readOnly": True},
        {"name": "e", "mountPath": "/tmp/hekla-mount-test"},
        {"name": "e", "mountPath": "/hekla-mount-test/deep", "subPath": "sub"},
        {"name": "m", "mountPath": "/hekla-mount-test/deep/map"},
    ]
    script = (
        "cat /etc/hekla-mount-test/f /run/hekla-mount-test/k; echo x > /tmp/hekla-mount-test/x;"
        "echo no > /run/hekla-mount-test/k || echo read-only;"
        "cat /hekla-mount-test/deep/map/f; ls /tmp/hekla-mount-test; id -u; stat -c %a /usr"
    )
    await machine.run_pod(
        "p",
        "sh",
        "-c",
        script,
        container={"volumeMounts": mounts},
        volumes=[
            {"name": "m", "configMap": {"name": "m"}},
            {"name": "s", "secret": {"secretName": "s"}},
            {"name": "e", "emptyDir": {}},
        ],
    )
    await machine.ended("p")
    text = await machine.logs("p")
    assert text.startswith("mapkey")
    assert "read-only" in text
    assert text.endswith(f"mapsub\nx\n{os.geteuid()}\n755\n")
    for mount in mounts:
        assert not os.path.exists(str(mount["mountPath"])), "created on the host"  # noqa: ASYNC240


async def test_pods_of_a_job_find_each_other_by_name(machine: Machine, isolation: None) -> None:
    listen = (
        "import socket,sys; s=socket.create_server((sys.argv[1],7777)); s.accept()[0].send(b'hi')"
    )
    await machine.run_pod(
        "w0", "python3", "-c", listen, "w0.train", hostname="w0", subdomain="train"
    )
    await machine.running("w0")
    call = (
        "import socket,time\n"
        "while True:\n"
        "  try: print(socket.create_connection(('w0.train',7777)).recv(9).decode()); break\n"
        "  except ConnectionRefusedError: time.sleep(0.05)\n"
        "print(socket.gethostname())"
    )
    await machine.run_pod("w1", "python3", "-c", call, hostname="w1", subdomain="train")
    await machine.ended("w1")
    assert (await machine.logs("w1")).split() == ["hi", "w1"]
    first = await machine.client.get(PODS, "w0", namespace="default")
    second = await machine.client.get(PODS, "w1", namespace="default")
    assert first["status"]["podIP"] != second["status"]["podIP"]


async def test_init_containers_run_first_and_sidecars_beside_the_main_container(
    machine: Machine,
) -> None:
    def container(name: str, script: str, **more: Any) -> Object:
        return {"name": name, "image": "host", "command": ["sh", "-c", script], **more}

    shared = [{"name": "shared", "mountPath": "/tmp/hekla-test-shared"}]
    place = "${HEKLA_VOLUME_SHARED:-/tmp/hekla-test-shared}"
    init = container("prepare", f"echo ready > {place}/f", volumeMounts=shared)
    proxy = container("proxy", "echo up; exec sleep 1000", restartPolicy="Always")
    await machine.run_pod(
        "p",
        "sh",
        "-c",
        f"cat {place}/f",
        container={"volumeMounts": shared},
        initContainers=[init, proxy],
        volumes=[{"name": "shared", "emptyDir": {}}],
    )
    pod = await machine.ended("p")
    assert pod["status"]["phase"] == "Succeeded"
    assert await machine.logs("p", container="main") == "ready\n"
    assert await machine.logs("p", container="proxy") == "up\n"
    assert state(pod, "proxy")["state"]["terminated"]["exitCode"] == 143


def existing(*paths: Path) -> list[Path]:
    return [path for path in paths if path.exists()]


async def test_volumes_at_paths_missing_on_the_host_are_shared_by_all_containers(
    machine: Machine, tmp_path: Path
) -> None:
    # One beside the agent's data directory, which holds the volumes; one below the root.
    paths = {"beside": f"{tmp_path}/new/beside", "below": "/hekla-test-new/below"}
    mounts = [{"name": name, "mountPath": path} for name, path in paths.items()]
    places = {name: f"${{HEKLA_VOLUME_{name.upper()}:-{path}}}" for name, path in paths.items()}
    write = "; ".join(f"echo {name} > {place}/f" for name, place in places.items())
    await machine.run_pod(
        "p", "sh", "-c", f"cat {places['beside']}/f {places['below']}/f",
        container={"volumeMounts": mounts},
        initContainers=[
            {"name": "prepare", "image": "host", "command": ["sh", "-c", write],
             "volumeMounts": mounts}
        ],
        volumes=[{"name": name, "emptyDir": {}} for name in paths],
    )  # fmt: skip
    pod = await machine.ended("p")
    assert await machine.logs("p", container="main") == "beside\nbelow\n"
    assert pod["status"]["phase"] == "Succeeded"
    assert existing(Path("/hekla-test-new"), tmp_path / "new") == []


async def test_pod_with_a_volume_beside_the_data_directory_can_be_stopped(
    machine: Machine, tmp_path: Path
) -> None:
    mounts = [{"name": "new", "mountPath": f"{tmp_path}/new"}]
    await machine.run_pod(
        "p", "sleep", "1000", container={"volumeMounts": mounts},
        volumes=[{"name": "new", "emptyDir": {}}], terminationGracePeriodSeconds=1,
    )  # fmt: skip
    await machine.running("p")
    await machine.client.delete(PODS, "p", namespace="default")
    await machine.until("p", lambda p: False)


async def test_failing_container_is_restarted_and_its_previous_log_is_kept(
    machine: Machine, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    script = f"if [ -e {flag} ]; then echo second; else touch {flag}; echo first; exit 1; fi"
    await machine.run_pod("p", "sh", "-c", script, restartPolicy="OnFailure")
    pod = await machine.ended("p")
    assert state(pod)["restartCount"] == 1
    assert state(pod)["lastState"]["terminated"]["exitCode"] == 1
    assert await machine.logs("p") == "second\n"
    assert await machine.logs("p", previous=True) == "first\n"
    by_number = [await machine.logs("p", run=number, follow=True) for number in range(3)]
    assert by_number == ["first\n", "second\n", ""]


async def test_node_says_whether_it_enforces_memory_limits(machine: Machine) -> None:
    await machine.run_pod("p", "true")
    await machine.ended("p")
    node = await machine.client.get(NODES, NODE)
    want = "enforced" if Cgroups().version else "none"
    assert node["metadata"]["annotations"]["hekla.io/memory-limits"] == want


async def test_deleted_pod_gets_sigterm_and_its_grace_period(
    machine: Machine, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    script = f"trap 'echo bye > {note}; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    await machine.run_pod("p", "sh", "-c", script)
    await machine.running("p")
    while "up" not in await machine.logs("p"):
        pass
    await machine.client.delete(PODS, "p", namespace="default")
    await machine.until("p", lambda p: False)
    assert note.read_text() == "bye\n"
    with pytest.raises(NotFound):
        await machine.client.get(PODS, "p", namespace="default")


async def test_pod_that_ended_before_the_server_knew_is_removed_when_it_is_deleted(
    machine: Machine,
) -> None:
    await machine.run_pod("p", "true")
    ended = await machine.ended("p")
    assert machine.agent is not None
    await machine.agent._tasks[ended["metadata"]["uid"]]  # its worker has ended, too
    # As if the deletion came before the report of its end: the server grants a grace period.
    await machine.client.patch_status(PODS, "p", {"phase": "Running"}, namespace="default")
    await machine.client.delete(PODS, "p", namespace="default")
    async with asyncio.timeout(60):
        while await machine.client.find(PODS, "p", namespace="default") is not None:
            await asyncio.to_thread(os.sched_yield)


class LossyClient(Client):
    """Its first deletions are lost."""

    lost = 2

    async def delete(self, *arguments: Any, **options: Any) -> Any:
        if self.lost:
            self.lost -= 1
            raise ConnectionLost("the server is away", established=False)
        return await super().delete(*arguments, **options)


async def test_deletion_of_an_ended_pod_is_tried_until_the_server_has_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_api, "REPORT_RETRY_S", 0.0)
    await machine.run_pod("p", "true")
    await machine.ended("p")
    await machine.stop_agent()
    await machine.client.patch_status(PODS, "p", {"phase": "Running"}, namespace="default")
    await machine.client.delete(PODS, "p", namespace="default")
    pod = await machine.client.get(PODS, "p", namespace="default")
    async with LossyClient(kubeconfig.load(machine.server.kubeconfig)) as lossy:
        api = pod_api.PodApi(lossy, EventRecorder(lossy, component="test"), SystemClock())
        await api.finish_deletion(pod)
        assert lossy.lost == 0
    assert await machine.client.find(PODS, "p", namespace="default") is None


async def test_pod_that_ignores_sigterm_is_killed_after_its_grace_period(machine: Machine) -> None:
    script = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    await machine.run_pod("p", "sh", "-c", script, terminationGracePeriodSeconds=1)
    await machine.running("p")
    while "up" not in await machine.logs("p"):
        pass
    await machine.client.delete(PODS, "p", namespace="default")
    await machine.until("p", lambda p: False)
    assert not _leftovers(machine)


def _leftovers(machine: Machine) -> list[str]:
    """Return processes with this test's directory or marks in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(machine.directory) in line and not _waits_for_a_container(line):
            found.append(line)
    return found


def _waits_for_a_container(line: str) -> bool:
    """Return whether a process is one of `warm_starts` that no container has taken."""
    named = re.search(r"/[^\s'\"]*/warm/\d+-\d+", line)
    if named is None:
        return False
    control = Path(named[0])
    return control.exists() and control.read_text() == ""


async def test_deleted_pod_leaves_no_processes_or_files(machine: Machine) -> None:
    await machine.run_pod("p", "sh", "-c", "(sleep 1000 &) ; setsid sleep 1000 & exec sleep 1000")
    pod = await machine.running("p")
    uid = pod["metadata"]["uid"]
    await machine.client.delete(PODS, "p", namespace="default", grace_period_s=1)
    await machine.until("p", lambda p: False)
    async with asyncio.timeout(60):
        while (machine.directory / "pods" / uid).exists() or _leftovers(machine):
            await asyncio.to_thread(os.sched_yield)  # the directory is removed a moment later


@pytest.mark.parametrize("way", ["root", "user"])
async def test_readiness_probe_sets_ready_and_liveness_probe_restarts(
    machine: Machine, isolation: None, tmp_path: Path, way: sandbox.Isolation
) -> None:
    await machine.stop_agent()
    machine.start_agent(isolate=way)
    flag = tmp_path / "ready"
    check = {"exec": {"command": ["test", "-e", str(flag)]}, "periodSeconds": 1}
    await machine.run_pod("p", "sleep", "1000", container={"readinessProbe": check})
    pod = await machine.running("p")
    assert not state(pod)["ready"]
    flag.touch()
    ready = await machine.until("p", lambda p: state(p)["ready"])
    conditions = {c["type"]: c["status"] for c in ready["status"]["conditions"]}
    assert conditions["Ready"] == "True"
    sick = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    await machine.run_pod("q", "sleep", "1000", container={"livenessProbe": sick})
    dead = await machine.ended("q")
    assert state(dead)["state"]["terminated"]["exitCode"] == 143


async def test_pod_past_its_active_deadline_fails(machine: Machine) -> None:
    await machine.run_pod("p", "sleep", "1000", activeDeadlineSeconds=1)
    pod = await machine.ended("p")
    assert pod["status"]["reason"] == "DeadlineExceeded"


async def test_pod_beyond_its_memory_limit_is_oom_killed(machine: Machine, isolation: None) -> None:
    if Cgroups().version == 0:
        pytest.skip("needs cgroups that this user may write")
    hog = "b=bytearray(400<<20)\nfor i in range(0,len(b),4096): b[i]=1"
    resources = {"limits": {"memory": "64Mi"}}
    await machine.run_pod("p", "python3", "-c", hog, container={"resources": resources})
    terminated = state(await machine.ended("p"))["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (137, "OOMKilled")


async def test_output_is_followed_to_its_end(machine: Machine, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    await machine.run_pod("p", "sh", "-c", f"echo one; read x < {gate}; echo two")
    await machine.running("p")
    async with machine.client.logs("p", namespace="default", follow=True) as chunks:
        seen = await anext(chunks)
        assert seen == b"one\n"
        await asyncio.to_thread(gate.write_text, "\n")
        async for chunk in chunks:
            seen += chunk
    assert seen == b"one\ntwo\n"
    assert await machine.logs("p", tail_lines=1) == "two\n"
    assert await machine.logs("p", limit_bytes=3) == "one"


async def test_without_namespaces_a_variable_has_the_path_of_a_volume(machine: Machine) -> None:
    await machine.run_pod("first", "true")
    await machine.ended("first")
    await machine.stop_agent()
    machine.start_agent(isolate="none")
    await machine.run_pod(
        "p",
        "sh",
        "-c",
        "echo kept > $HEKLA_VOLUME_DATA/f; cat $HEKLA_VOLUME_DATA/f",
        container={"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
        volumes=[{"name": "data", "emptyDir": {}}],
    )
    pod = await machine.ended("p")
    assert pod["status"]["phase"] == "Succeeded"
    assert await machine.logs("p") == "kept\n"


async def test_without_namespaces_pods_of_a_job_find_each_other_by_address(
    machine: Machine,
) -> None:
    await machine.stop_agent()
    machine.start_agent(isolate="none")
    where = [{"name": "MASTER", "value": "w0.train:7777"}]
    dial = (
        "import os,socket,time,sys\n"
        "host, port = os.environ['MASTER'].split(':')\n"
        "while True:\n"
        "    try: s = socket.create_connection((host, int(port))); break\n"
        "    except OSError: time.sleep(0.05)\n"
        "print(s.recv(9).decode(), sys.argv[1] == host)"
    )
    listen = (
        "import socket,sys; s=socket.create_server((sys.argv[1],7777)); s.accept()[0].send(b'hi')"
    )
    # The client starts first: the address of the server is known before it exists.
    await machine.run_pod(
        "w1", "python3", "-c", dial, "w0.train.default.svc.cluster.local",
        container={"env": where}, hostname="w1", subdomain="train",
    )  # fmt: skip
    await machine.running("w1")
    await machine.run_pod(
        "w0", "python3", "-c", listen, "w0.train", hostname="w0", subdomain="train"
    )
    await machine.ended("w1")
    assert await machine.logs("w1") == "hi True\n"


async def test_pods_on_a_bridge_network_listen_on_the_same_port(
    machine: Machine, isolation: None
) -> None:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and the command ip (iproute2)")
    await machine.stop_agent()
    network = BridgeNetwork(machine.directory)
    machine.start_agent(network=network)
    listen = (
        "import socket; s=socket.create_server(('0.0.0.0',7777));"
        "print('up',flush=True); s.accept()[0].send(socket.gethostname().encode())"
    )
    for name in ("w0", "w1"):
        await machine.run_pod(name, "python3", "-c", listen, hostname=name, subdomain="train")
        await machine.running(name)
    call = (
        "import socket,time\n"
        "for name in ('w0.train','w1.train'):\n"
        "  while True:\n"
        "    try: print(socket.create_connection((name,7777)).recv(9).decode()); break\n"
        "    except ConnectionRefusedError: time.sleep(0.05)\n"
    )
    await machine.run_pod("caller", "python3", "-c", call)
    pod = await machine.ended("caller")
    assert (await machine.logs("caller")).split() == ["w0", "w1"]
    assert not network.path(pod["metadata"]["uid"]).exists(), "removed with the pod's last process"
    served = await machine.ended("w0")
    assert served["status"]["podIP"] != pod["status"]["podIP"]
