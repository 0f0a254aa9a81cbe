"""kubectl against one server, with a namespace per test.

kubectl("get", "pods")            run in the test's namespace; an error fails the test
kubectl.fails("get", "nonsense")  return the error text of a command that must fail
kubectl.follow("get", "-w", …)    run a command in the background and wait for its lines
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Self

import pytest

from tests.apiserver.threads import ServerThread, running_server

DEADLINE_S = 120.0
Manifest = dict[str, Any] | list[dict[str, Any]] | str


def find_kubectl() -> str | None:
    beside = Path(sys.executable).parent / "kubectl"
    return str(beside) if beside.exists() else shutil.which("kubectl")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.kubectl)


def as_text(manifest: Manifest) -> str:
    """A manifest for kubectl's standard input."""
    if isinstance(manifest, str):
        return manifest
    if isinstance(manifest, list):
        return "\n---\n".join(json.dumps(one) for one in manifest)
    return json.dumps(manifest)


class Follower:
    """A running command and the lines it has printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.Queue[str] = queue.Queue()
        assert process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
        self._reader.start()
        self.seen: list[str] = []

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put(line.rstrip("\n"))

    def line_with(self, *words: str) -> str:
        """Return the next line that has all these words."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no line with {words} came; seen: {self.seen}") from None
            self.seen.append(line)
            if all(word in line for word in words):
                return line

    def finish(self) -> int:
        """Wait until the command ends."""
        return self._process.wait(DEADLINE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Kubectl:
    """kubectl with a kubeconfig, in one namespace."""

    def __init__(self, program: str, environment: dict[str, str], namespace: str) -> None:
        self._program = program
        self._environment = environment
        self.namespace = namespace

    def _command(self, args: tuple[str, ...]) -> list[str]:
        first, *rest = args
        return [self._program, first, f"--namespace={self.namespace}", *rest]

    def run(
        self, *args: str, input: Manifest | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(args),
            input="" if input is None else as_text(input),
            capture_output=True,
            text=True,
            env={**self._environment, **(env or {})},
            timeout=DEADLINE_S,
            check=False,
        )

    def __call__(
        self, *args: str, input: Manifest | None = None, env: dict[str, str] | None = None
    ) -> str:
        """Return the output; an error fails the test."""
        done = self.run(*args, input=input, env=env)
        command = " ".join(["kubectl", *args])
        assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stderr}"
        return done.stdout

    def fails(self, *args: str, input: Manifest | None = None) -> str:
        """Return the error text of a command that must fail."""
        done = self.run(*args, input=input)
        assert done.returncode != 0, f"{' '.join(args)} succeeded:\n{done.stdout}"
        return done.stderr

    def json(self, *args: str, input: Manifest | None = None) -> Any:
        return json.loads(self(*args, "-o", "json", input=input))

    def rows(self, *args: str) -> list[dict[str, str]]:
        """Parse a table printed by kubectl, one row per object."""
        header, *lines = self(*args).splitlines()
        starts = [0] + [
            i for i in range(1, len(header)) if header[i] != " " and header[i - 3 : i] == "   "
        ]
        bounds = list(zip(starts, [*starts[1:], None], strict=True))
        names = [header[low:high].strip() for low, high in bounds]
        return [
            {n: line[low:high].strip() for n, (low, high) in zip(names, bounds, strict=True)}
            for line in lines
        ]

    def create(self, *manifests: dict[str, Any]) -> None:
        self("create", "-f", "-", input=list(manifests))

    def follow(self, *args: str) -> Follower:
        process = subprocess.Popen(
            self._command(args),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
        )
        return Follower(process)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    """One server for all tests in this package."""
    with running_server(tmp_path_factory.mktemp("cluster") / "data") as running:
        yield running


@pytest.fixture(scope="session")
def kubectl_environment(
    cluster: ServerThread, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    home = tmp_path_factory.mktemp("home")
    return {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(home),
        "KUBECONFIG": str(cluster.kubeconfig),
        "KUBECACHEDIR": str(home / "cache"),
    }


_numbers = itertools.count(1)


@pytest.fixture
def unique() -> str:
    """A unique name."""
    return f"t{next(_numbers)}"


@pytest.fixture
def kubectl(cluster: ServerThread, kubectl_environment: dict[str, str], unique: str) -> Kubectl:
    """kubectl in a new namespace."""
    program = find_kubectl()
    if program is None:
        pytest.skip("needs kubectl: run `make setup`, which installs it into .venv")
    cluster.create("v1", "Namespace", {"metadata": {"name": unique}})
    return Kubectl(program, kubectl_environment, unique)
