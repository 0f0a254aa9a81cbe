"""Measure trivial containers on one machine: hekla's runtimes beside runc and containerd.

    python -m bench.containers [--many 200]

Needs root, Go and a Debian `apt-get` for the other programs. The image is a static busybox; a
container runs `true`. For hekla the time runs from the request that creates a pod on the node to
the event with phase Succeeded, so it includes the API server; for the others it is that of the
command. Memory is what all processes have more, by proportional set size, while containers sleep.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from tools import debian
from tools.kube.gobuild import ensure
from tools.kube.images import busybox_archive
from tools.kube.parts import CONTAINERD, CTR, SHIM
from tools.waiting import until

from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.resources import NODES, PODS
from hekla.units.objects import Object

HEKLA = [sys.executable, "-m", "hekla.cli.main"]
IMAGE = "localhost/trivial:1"
ONE_BY_ONE = 20
AT_ONCE = 4
"""Commands of other programs at once; more do not help on two CPUs."""
SLEEPING = 20


class System(Protocol):
    """A way to run containers."""

    def run(self, name: str) -> None:
        """Run a container that ends at once."""

    def many(self, count: int) -> float:
        """Run so many containers; return the seconds."""

    def sleep(self, count: int) -> None:
        """Start so many containers that go on."""

    def stop(self, count: int) -> None:
        """End them."""


class Pods:
    """Pods of `hekla up`, put on the node without a scheduler."""

    def __init__(self, data_dir: Path, runtime_class: str, image: str) -> None:
        self._config = kubeconfig.load(data_dir / "kubeconfig")
        self._class, self._image = runtime_class, image

    def run(self, name: str) -> None:
        asyncio.run(self._run([f"{self._class}-{name}"], ["true"], "Succeeded"))

    def many(self, count: int) -> float:
        began = time.perf_counter()
        names = [f"many-{self._class}-{number}" for number in range(count)]
        asyncio.run(self._run(names, ["true"], "Succeeded"))
        return time.perf_counter() - began

    def sleep(self, count: int) -> None:
        asyncio.run(self._run(self._sleepers(count), ["sleep", "1000"], "Running"))

    def stop(self, count: int) -> None:
        async def delete() -> None:
            async with Client(self._config) as client:
                for name in self._sleepers(count):
                    await client.delete(PODS, name, namespace="default")

        asyncio.run(delete())

    def _sleepers(self, count: int) -> list[str]:
        return [f"sleep-{self._class}-{number}" for number in range(count)]

    async def _run(self, names: Sequence[str], command: Sequence[str], phase: str) -> None:
        async with Client(self._config) as client:
            (node,) = [each["metadata"]["name"] for each in await client.list(NODES)]
            version = (await client.list(PODS, namespace="default")).resource_version
            async with asyncio.TaskGroup() as group:
                group.create_task(self._until(client, set(names), version, phase))
                for name in names:
                    pod = self._pod(name, node, command)
                    group.create_task(client.create(PODS, pod))

    def _pod(self, name: str, node: str, command: Sequence[str]) -> Object:
        return {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "nodeName": node,
                "runtimeClassName": self._class,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": self._image, "command": list(command)}],
            },
        }

    async def _until(self, client: Client, left: set[str], version: str, phase: str) -> None:
        async with client.watch(PODS, namespace="default", resource_version=version) as events:
            async for event in events:
                status, name = event.object.get("status") or {}, event.object["metadata"]["name"]
                if name in left and status.get("phase") == "Failed":
                    raise SystemExit(f"{name} failed: {json.dumps(status)}")
                if status.get("phase") == phase:
                    left.discard(name)
                if not left:
                    return


class Commands:
    """A program that runs a container for each command."""

    def __init__(
        self, run: Sequence[str], sleep: Sequence[str], stop: Sequence[str], **environment: str
    ) -> None:
        """In the words, NAME stands for the name of the container."""
        self._run, self._sleep, self._stop = run, sleep, stop
        self._environment = {**os.environ, **environment}

    def run(self, name: str) -> None:
        self._call(self._run, name)

    def many(self, count: int) -> float:
        began = time.perf_counter()
        with ThreadPoolExecutor(AT_ONCE) as threads:
            for _ in threads.map(self.run, [f"many-{number}" for number in range(count)]):
                pass
        return time.perf_counter() - began

    def sleep(self, count: int) -> None:
        for number in range(count):
            self._call(self._sleep, f"sleep-{number}")

    def stop(self, count: int) -> None:
        for number in range(count):
            self._call(self._stop, f"sleep-{number}")

    def _call(self, words: Sequence[str], name: str) -> None:
        with tempfile.TemporaryFile() as output:  # a pipe would be open as long as the container
            done = subprocess.run(
                [word.replace("NAME", name) for word in words],
                env=self._environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
            if done.returncode:
                output.seek(0)
                raise SystemExit(f"{' '.join(words)}: {output.read().decode(errors='replace')}")


def runc(where: Path, archive: bytes) -> Commands:
    """Return runc on bundles that share an unpacked root."""
    root = where / "root"
    root.mkdir(parents=True)
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        file.write(archive)
        file.flush()
        subprocess.run(["tar", "-xf", file.name, "-C", where, "layer.tar"], check=True)
    subprocess.run(["tar", "-xf", where / "layer.tar", "-C", root], check=True)
    program = str(debian.program("runc"))
    for bundle, command in (("true", ["true"]), ("sleep", ["sleep", "1000"])):
        (where / bundle).mkdir()
        subprocess.run([program, "spec"], cwd=where / bundle, check=True)
        path = where / bundle / "config.json"
        spec: dict[str, Any] = json.loads(path.read_text())
        spec["process"] |= {"terminal": False, "args": command}
        spec["process"].pop("rlimits", None)
        spec["root"] = {"path": str(root), "readonly": True}
        path.write_text(json.dumps(spec))
    return Commands(
        [program, "run", "--bundle", str(where / "true"), "NAME"],
        [program, "run", "--detach", "--bundle", str(where / "sleep"), "NAME"],
        [program, "delete", "--force", "NAME"],
    )


@contextlib.contextmanager
def containerd(where: Path, archive: bytes) -> Iterator[Commands]:
    """Run a containerd; yield its client."""
    (where / "programs").mkdir(parents=True)
    for part in (CONTAINERD, SHIM):
        (where / "programs" / part.name).symlink_to(ensure(part))
    (where / "programs/runc").symlink_to(debian.program("runc"))
    socket = where / "containerd.sock"
    (where / "config.toml").write_text(
        f'version = 3\nroot = "{where}/data"\nstate = "{where}/state"\n'
        f'disabled_plugins = ["io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images"]\n'
        f'[grpc]\naddress = "{socket}"\n'
    )
    environment = {"PATH": f"{where}/programs:{os.environ['PATH']}"}
    with (where / "log").open("w") as log:
        server = subprocess.Popen(
            [where / "programs/containerd", "-c", where / "config.toml"],
            env={**os.environ, **environment}, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        until(socket.exists, "containerd does not start")
        ctr = [str(ensure(CTR)), "--address", str(socket)]
        (where / "image.tar").write_bytes(archive)
        subprocess.run(
            [*ctr, "images", "import", where / "image.tar"], check=True, capture_output=True
        )
        yield Commands(
            [*ctr, "run", "--rm", IMAGE, "NAME", "true"],
            [*ctr, "run", "--detach", IMAGE, "NAME", "sleep", "1000"],
            [*ctr, "task", "rm", "--force", "NAME"],
            **environment,
        )
    finally:
        server.terminate()
        server.wait()


def proportional_memory() -> int:
    """Return the proportional set size of all processes, in KiB."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/smaps_rollup"):
        with contextlib.suppress(OSError):
            for line in path.read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total


def measure(name: str, system: System, count: int) -> None:
    system.run("first")
    times = []
    for number in range(ONE_BY_ONE):
        began = time.perf_counter()
        system.run(f"one-{number}")
        times.append(time.perf_counter() - began)
    rate = count / system.many(count)
    before = proportional_memory()
    system.sleep(SLEEPING)
    memory = (proportional_memory() - before) / SLEEPING / 1024
    system.stop(SLEEPING)
    print(
        f"{name:14} {statistics.median(times) * 1e3:6.0f} ms {rate:8.1f} a second "
        f"{memory:6.1f} MiB each",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--many", type=int, default=200, help="containers at once")
    count = parser.parse_args().many
    if os.geteuid() != 0:
        raise SystemExit("bench.containers needs root, for runc and containerd")
    archive = busybox_archive(IMAGE)
    with tempfile.TemporaryDirectory(prefix="hekla-bench-") as folder:
        where = Path(folder)
        (where / "image.tar").write_bytes(archive)
        data = where / "hekla"
        at = ("--data-dir", str(data))
        up = [*HEKLA, "up", "--port", "0", "--detach", *at]
        load = [*HEKLA, "image", "load", *at, str(where / "image.tar")]
        for words in (up, load):
            subprocess.run(words, check=True, capture_output=True)
        try:
            measure("hekla process", Pods(data, "process", "host"), count)
            measure("hekla oci", Pods(data, "oci", IMAGE), count)
        finally:
            subprocess.run([*HEKLA, "down", "--abort", *at], check=True, capture_output=True)
        measure("runc", runc(where / "runc", archive), count)
        with containerd(where / "containerd", archive) as system:
            measure("ctr", system, count)


if __name__ == "__main__":
    main()
