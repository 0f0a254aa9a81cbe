"""What the tests of the guides share: a cluster of one process, and the manifests of an example."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from hekla.kube import kubeconfig
from hekla.kube.resources import CONFIGMAPS, JOBS, PRIORITY_CLASSES, QUEUES
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
    """`hekla up` with these flags, in a directory of its own."""
    where = ["--data-dir", str(directory)]
    subprocess.run([*HEKLA, "up", *where, "--detach", *flags], check=True, capture_output=True)
    with SyncClient(kubeconfig.load(directory / "kubeconfig")) as client:
        yield client
    subprocess.run([*HEKLA, "down", *where], check=True, capture_output=True)


def submit(client: SyncClient, manifest: Path) -> None:
    """Everything in a file; a configuration takes the place of the one before."""
    for obj in yaml.safe_load_all(manifest.read_text()):
        kind = KINDS[obj["kind"]]
        if obj["kind"] == "ConfigMap":
            client.apply(kind, obj, field_manager="test", force=True)
        else:
            client.create(kind, obj)
