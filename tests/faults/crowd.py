"""Users that submit gangs, and finish the pods of a gang once all of them run.

A pod finishes only together with its gang, so a partly bound gang is visible: its job never
finishes.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from hekla.kube import kubeconfig
from hekla.kube.errors import AlreadyExists, KubeError, NotFound
from hekla.kube.resources import JOBS, PODS
from hekla.kube.retries import NO_RETRIES
from hekla.kube.sync_client import SyncClient
from tests.faults.waiting import until

Json = dict[str, Any]
FINISH = "hekla.test/finish"
JOB_NAME = "volcano.sh/job-name"
WATCH_S = 2.0
PAUSE_S = 0.1


def gang(name: str, size: int, cpu: str) -> Json:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    task = {"name": "worker", "replicas": size, "template": template}
    return {"metadata": {"name": name}, "spec": {"minAvailable": size, "tasks": [task]}}


class Crowd:
    """All users of one namespace."""

    def __init__(self, config: Path, namespace: str, seed: int) -> None:
        self.namespace = namespace
        self.sizes: dict[str, int] = {}
        self._config = config
        self._random = Random(seed)
        self._pods: dict[str, Json] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._finish, name="crowd", daemon=True)

    def __enter__(self) -> Crowd:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(60)

    def submit(self, count: int, sizes: tuple[int, ...] = (2, 3, 4, 6)) -> None:
        """Submit so many more gangs; retry requests without a response."""
        with self._client() as client:
            for _ in range(count):
                name = f"gang-{len(self.sizes)}"
                self.sizes[name] = self._random.choice(sizes)
                body = gang(name, self.sizes[name], self._random.choice(("500m", "1", "2")))
                until(partial(self._create, client, body))

    def until_ended(self, count: int | None = None) -> None:
        """Wait until so many jobs (all by default) are Completed."""
        wanted = len(self.sizes) if count is None else count
        with self._client() as client:
            until(lambda: self.ended(client) >= wanted)

    def ended(self, client: SyncClient) -> int:
        jobs = client.list(JOBS, namespace=self.namespace)
        phases = [((j.get("status") or {}).get("state") or {}).get("phase") for j in jobs]
        return phases.count("Completed")

    def _client(self) -> SyncClient:
        return SyncClient(kubeconfig.load(self._config), component="crowd")

    def _create(self, client: SyncClient, body: Json) -> bool:
        with contextlib.suppress(AlreadyExists):
            client.create(JOBS, body, namespace=self.namespace)
        return True

    # --- ending gangs that run ------------------------------------------------------------------

    def _finish(self) -> None:
        while not self._stopping.is_set():
            config = kubeconfig.load(self._config)
            try:
                with SyncClient(config, component="crowd", retry=NO_RETRIES) as client:
                    self._follow(client)
            except KubeError:
                self._stopping.wait(PAUSE_S)  # the server restarts

    def _follow(self, client: SyncClient) -> None:
        listed = client.list(PODS, namespace=self.namespace)
        self._pods = {pod["metadata"]["name"]: pod for pod in listed}
        with self._client() as writing:
            self._end_whole_gangs(writing)
            with client.watch(
                PODS,
                namespace=self.namespace,
                resource_version=listed.resource_version,
                timeout_s=WATCH_S,
            ) as events:
                for event in events:
                    name = event.object["metadata"]["name"]
                    self._pods[name] = event.object
                    if event.type == "DELETED":
                        del self._pods[name]
                    self._end_whole_gangs(writing)

    def _end_whole_gangs(self, client: SyncClient) -> None:
        running: dict[str, list[str]] = defaultdict(list)
        for name, pod in self._pods.items():
            marks = pod["metadata"].get("annotations") or {}
            phase = (pod.get("status") or {}).get("phase")
            if phase in ("Running", "Succeeded"):
                running[marks.get(JOB_NAME, "")].append(name)
        for job, pods in running.items():
            if len(pods) == self.sizes.get(job):
                for name in pods:
                    self._end(client, name)

    def _end(self, client: SyncClient, name: str) -> None:
        metadata = self._pods[name]["metadata"]
        if FINISH in (metadata.get("annotations") or {}):
            return
        note = {"metadata": {"annotations": {FINISH: "Succeeded"}}}
        with contextlib.suppress(NotFound):
            self._pods[name] = client.patch(PODS, name, note, namespace=self.namespace)
