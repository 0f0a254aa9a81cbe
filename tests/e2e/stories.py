"""Helpers of the guide tests: a cluster in one process, and the manifests of an example."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from hekla.kube import kubeconfig
from hekla.kube.resources import CONFIGMAPS, JOBS, PRIORITY_CLASSES, QUEUES, Resource
from hekla.kube.sync_client import SyncClient

HEKLA = [sys.executable, "-m", "hekla.cli.main"]
KINDS = {
    "ConfigMap": CONFIGMAPS,
    "Job": JOBS,
    "PriorityClass": PRIORITY_CLASSES,
    "Queue": QUEUES,
}


@contextmanager
def cluster(directory: Path, *flags: str) -> Iterator[SyncClient]:
    """Run `hekla up` with these flags in a new directory."""
    where = ["--data-dir", str(directory)]
    subprocess.run(
        [*HEKLA, "up", *where, "--port", "0", "--detach", *flags], check=True, capture_output=True
    )
    with SyncClient(kubeconfig.load(directory / "kubeconfig")) as client:
        yield client
    subprocess.run([*HEKLA, "down", *where], check=True, capture_output=True)


def submit(client: SyncClient, manifest: Path, changed: Mapping[str, str] | None = None) -> None:
    """Submit all objects of a file; a configuration replaces the previous one.

    `changed` maps text to its replacement, such as the address of the test.
    """
    text = manifest.read_text()
    for old, new in (changed or {}).items():
        assert old in text, f"{manifest.name} does not have {old}"
        text = text.replace(old, new)
    for obj in yaml.safe_load_all(text):
        kind = KINDS[obj["kind"]]
        if obj["kind"] == "ConfigMap":
            client.apply(kind, obj, field_manager="test", force=True)
        else:
            client.create(kind, obj)


def seen(client: SyncClient, kind: Resource[Any], holds: Callable[[list[Any]], bool]) -> None:
    """Watch a kind until a condition holds for its objects."""
    listed = client.list(kind)
    there = {each["metadata"]["uid"]: each for each in listed.items}
    if holds(list(there.values())):
        return
    with client.watch(kind, resource_version=listed.resource_version, timeout_s=600) as events:
        for event in events:
            there[event.object["metadata"]["uid"]] = event.object
            if event.type == "DELETED":
                del there[event.object["metadata"]["uid"]]
            if holds(list(there.values())):
                return
    raise AssertionError(f"{kind} never came to be as they should: {list(there.values())}")


def nodes_of(pods: list[Any]) -> dict[str, int]:
    """Return the number of pods on each node without terminating ones."""
    return dict(
        Counter(
            pod["spec"]["nodeName"]
            for pod in pods
            if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
        )
    )


class Program:
    """An HTTP server of an example that prints its address and every request."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.url = process.stdout.readline().strip()
        self._said = process.stderr

    def is_asked(self, times: int) -> None:
        """Return when it has received so many requests from now on."""
        for _ in range(times):
            assert self._said.readline(), "the program ended"


@contextmanager
def program(script: Path, *words: object) -> Iterator[Program]:
    """Run a program of an example until the block ends."""
    line = [sys.executable, str(script), *map(str, words)]
    process = subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )
    with process:
        try:
            yield Program(process)
        finally:
            process.kill()
