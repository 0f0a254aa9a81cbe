"""Input and connections to running pods, by kubectl and by the official Python client."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from kubernetes import client as official
from kubernetes import config as official_config
from kubernetes.stream import portforward

from hekla.kube.resources import PODS
from hekla.nodeagent import streams
from tests.nodeagent.conftest import Machine

KUBECTL = shutil.which("kubectl", path=str(Path(sys.executable).parent))
OUTPUT_BYTES = 2_000_000
SERVE = (
    "import http.server\n"
    "class H(http.server.BaseHTTPRequestHandler):\n"
    "    def do_GET(self):\n"
    "        self.send_response(200); self.end_headers(); self.wfile.write(b'from the pod')\n"
    "    def log_message(self, *a): pass\n"
    "s = http.server.HTTPServer(('127.0.0.1', 0), H)\n"
    "print(s.server_port, flush=True)\n"
    "s.serve_forever()\n"
)


async def kubectl(machine: Machine, *words: str, given: bytes = b"") -> tuple[int, str, str]:
    assert KUBECTL is not None
    child = await asyncio.create_subprocess_exec(
        KUBECTL, "--kubeconfig", str(machine.server.kubeconfig), *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(300):
            out, err = await child.communicate(given)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert child.returncode is not None
    return child.returncode, out.decode(), err.decode()


@pytest.mark.kubectl
async def test_attach_passes_input_and_its_end_to_the_container(machine: Machine) -> None:
    script = "while read line; do echo got $line; done; echo done"
    await machine.run_pod("p", "sh", "-c", script, container={"stdin": True, "stdinOnce": True})
    await machine.running("p")
    code, out, err = await kubectl(machine, "attach", "-i", "p", given=b"one\ntwo\n")
    assert code == 0, err
    assert out == "got one\ngot two\ndone\n"
    assert (await machine.ended("p"))["status"]["phase"] == "Succeeded"


@pytest.mark.kubectl
async def test_exec_runs_in_a_sidecar(machine: Machine) -> None:
    sidecar = {
        "name": "sidecar",
        "image": "host",
        "restartPolicy": "Always",
        "command": ["sleep", "600"],
        "env": [{"name": "WHO", "value": "sidecar"}],
    }
    await machine.run_pod("p", "sleep", "600", initContainers=[sidecar])
    await machine.running("p")
    code, out, err = await kubectl(machine, "exec", "p", "-c", "sidecar", "--", "printenv", "WHO")
    assert code == 0, err
    assert out == "sidecar\n"
    code, _, err = await kubectl(machine, "exec", "p", "-c", "none", "--", "true")
    assert code == 1


@pytest.mark.kubectl
async def test_input_continues_after_a_restart_of_the_agent(machine: Machine) -> None:
    script = 'read a; echo "first $a"; read b; echo "second $b"'
    await machine.run_pod("p", "sh", "-c", script, container={"stdin": True})
    await machine.running("p")
    # Without stdinOnce the input stays open, so attach does not return: it is killed.
    typed = asyncio.create_task(kubectl(machine, "attach", "-i", "p", given=b"one\n"))
    async with machine.client.logs("p", namespace="default", follow=True) as chunks:
        assert await anext(chunks) == b"first one\n"
    await machine.stop_agent()
    typed.cancel()
    await asyncio.wait([typed])
    machine.start_agent()
    await machine.run_pod("q", "true")
    await machine.ended("q")  # the new agent is running and has adopted its pods
    code, _, err = await kubectl(machine, "attach", "-i", "p", given=b"two\n")
    assert code == 0, err
    await machine.ended("p")
    assert await machine.logs("p") == "first one\nsecond two\n"


@pytest.mark.kubectl
async def test_attach_with_input_is_rejected_for_a_container_without_stdin(
    machine: Machine,
) -> None:
    await machine.run_pod("p", "sleep", "1000")
    await machine.running("p")
    code, _, err = await kubectl(machine, "attach", "-i", "p", given=b"x")
    assert code != 0
    assert "set `stdin: true` in its spec" in err


@pytest.mark.kubectl
async def test_files_are_copied_in_and_out(machine: Machine, tmp_path: Path) -> None:
    await machine.run_pod("p", "sleep", "1000")
    await machine.running("p")
    (tmp_path / "in").write_text("payload")
    for words in (("in", "p:there"), ("p:there", "out")):
        sources = [str(tmp_path / w) if ":" not in w else w for w in words]
        code, _, err = await kubectl(machine, "cp", *sources)
        assert code == 0, err
    assert (tmp_path / "out").read_text() == "payload"


async def test_port_of_a_pod_is_forwarded_through_the_server(machine: Machine) -> None:
    await machine.run_pod("p", "python3", "-u", "-c", SERVE)
    await machine.running("p")
    async with machine.client.logs("p", namespace="default", follow=True) as chunks:
        port = int(await anext(chunks))

    def ask() -> bytes:
        configuration = official.Configuration()
        official_config.load_kube_config(  # type: ignore[no-untyped-call]
            str(machine.server.kubeconfig), client_configuration=configuration
        )
        with official.ApiClient(configuration) as api:
            call = official.CoreV1Api(api).connect_get_namespaced_pod_portforward
            forward = portforward(call, "p", "default", ports=str(port))
            socket = forward.socket(port)
            socket.settimeout(120)
            socket.sendall(b"GET / HTTP/1.0\r\n\r\n")
            answer = b""
            while b"from the pod" not in answer:
                answer += socket.recv(4096)
            socket.close()
            return answer

    assert b"200" in (await asyncio.to_thread(ask)).splitlines()[0]
    await machine.client.delete(PODS, "p", namespace="default", grace_period_s=0)


class SlowClient:
    """Channels of a client that reads its first chunk late, and sends nothing."""

    def __init__(self) -> None:
        self.received = b""

    async def send(self, channel: int, data: bytes) -> None:
        if not self.received:
            for _ in range(1000):  # iterations of the loop in which more output is read
                await asyncio.sleep(0)
        self.received += data

    async def receive(self) -> tuple[int, bytes] | None:
        await asyncio.Event().wait()
        return None


async def test_terminal_output_is_complete_if_the_client_reads_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "MAX_CHUNKS_AHEAD", 2)
    client = SlowClient()
    script = f"head -c {OUTPUT_BYTES} /dev/zero | tr '\\0' x"
    request = SimpleNamespace(tty=True)
    status = await streams.run_stream(["sh", "-c", script], dict(os.environ), request, client)
    assert status["status"] == "Success"
    assert len(client.received) == OUTPUT_BYTES
