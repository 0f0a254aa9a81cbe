"""Record the decisions of Volcano: `python -m tests.fidelity.record [--missing] [part of a name
…]`.

Builds Kubernetes and Volcano if needed, runs every case twice on a real server with kwok nodes, and
stores Volcano's decisions in `cases/*.golden.json`. Volcano starts when all objects of a case
exist, so that its first session sees them all; if it panics it is restarted, as in a Deployment. A
case ends when nothing has changed for some sessions. Two runs that differ in what the case compares
are an error: the case does not determine the decision and must compare less or be more specific.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from tools.kube.cluster import KubeCluster
from tools.peers import volcano
from tools.waiting import until

from hekla.kube.errors import KubeError, NotFound
from hekla.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    HYPER_NODES,
    NAMESPACES,
    NODES,
    NUMA_TOPOLOGIES,
    POD_DISRUPTION_BUDGETS,
    PODGROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_QUOTAS,
    Resource,
)
from hekla.kube.sync_client import SyncClient
from tests.fidelity import catalogue, extender, load, outcome
from tests.fidelity.catalogue import HERE, NAMESPACE, Case, Json

RUNS = 2
QUIET_SESSIONS = 8
LIMIT_S = 60.0
_POLL_S = 0.2
_SYSTEM = "system-"


class Restless(Exception):
    """The state does not settle; the text has the end of the log."""


class Recorder:
    """One server for all cases; new objects and a new Volcano for each."""

    def __init__(self, cluster: KubeCluster, client: SyncClient) -> None:
        self._cluster = cluster
        self._client = client

    def prepare(self) -> None:
        self._client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        for body in volcano_crds():
            self._client.create(CUSTOM_RESOURCE_DEFINITIONS, body)
        self._until(self._kinds_are_served)

    def run(self, source: load.Source) -> Json:
        case = source.case
        self._clear()
        self._fill(case)
        source.told.clear()
        before = [outcome.seen(pod) for pod in self._client.list(PODS, namespace=NAMESPACE)]
        conf = self._cluster.directory / "scheduler.conf"
        conf.write_text(case.conf)
        log = self._cluster.processes.log(volcano.SCHEDULER.name)
        log.unlink(missing_ok=True)
        volcano.start_scheduler(self._cluster, conf)
        watched = time.monotonic() + case.waits_s
        try:
            if case.opens_late:
                self._until(lambda: _sessions(log) > 0)
                self._open_nodes()
            if case.is_measured:
                self._until(lambda: source.has_told_all)
                told_at = _sessions(log)
                self._until(lambda: _sessions(log) > told_at + 1)
                self._open_queues(case)
            self._until(lambda: time.monotonic() >= watched)
            self._settle(log)
        finally:
            self._cluster.processes.stop(volcano.SCHEDULER.name)
        after = [outcome.seen(pod) for pod in self._client.list(PODS, namespace=NAMESPACE)]
        return outcome.summary(before, after, self._phases())

    def _open_nodes(self) -> None:
        for node in self._client.list(NODES):
            name = node["metadata"]["name"]
            self._client.patch(NODES, name, {"spec": {"unschedulable": False}})

    def _open_queues(self, case: Case) -> None:
        for body in catalogue.queues(case):
            self._write_status(QUEUES, body)

    def _clear(self) -> None:
        for pod in self._client.list(PODS, namespace=NAMESPACE):
            self._client.delete(
                PODS, pod["metadata"]["name"], namespace=NAMESPACE, grace_period_s=0,
                missing_ok=True,
            )  # fmt: skip
        for resource in (
            PODGROUPS, QUEUES, NODES, HYPER_NODES, NUMA_TOPOLOGIES, PRIORITY_CLASSES,
            RESOURCE_QUOTAS, POD_DISRUPTION_BUDGETS,
        ):  # fmt: skip
            for obj in self._client.list(resource):
                name, space = obj["metadata"]["name"], obj["metadata"].get("namespace")
                if not name.startswith(_SYSTEM):
                    self._client.delete(resource, name, namespace=space, missing_ok=True)
        self._until(lambda: not self._client.list(PODS, namespace=NAMESPACE).items)

    def _fill(self, case: Case) -> None:
        for resource, objects in (
            (NODES, catalogue.nodes(case)),
            (HYPER_NODES, catalogue.hypernodes(case)),
            (NUMA_TOPOLOGIES, catalogue.numa_topologies(case)),
            (PRIORITY_CLASSES, catalogue.priority_classes(case)),
        ):
            for body in objects:
                self._client.create(resource, body)
        if case.opens_late:
            for body in catalogue.nodes(case):
                name = body["metadata"]["name"]
                self._client.patch(NODES, name, {"spec": {"unschedulable": True}})
        for body in catalogue.queues(case):
            if case.is_measured:
                body.pop("status")  # see `_open_queues`
            self._create_in_order(QUEUES, body, wait=body["metadata"]["name"] in case.queues)
        for pod in catalogue.foreign_pods(case):
            self._client.create(PODS, pod)
        for group, pods in catalogue.groups(case):
            self._create_in_order(PODGROUPS, group)
            for pod in pods:
                self._client.create(PODS, pod)
        for resource, objects in (
            (RESOURCE_QUOTAS, catalogue.quotas(case)),
            (POD_DISRUPTION_BUDGETS, catalogue.budgets(case)),
        ):
            for body in objects:
                self._create(resource, body)
        self._until(self._placed_pods_run)
        for _, pods in catalogue.groups(case):  # not before: kwok writes conditions
            for pod in pods:
                if "status" in pod:
                    self._write_status(PODS, pod)

    def _create_in_order(self, resource: Resource[Any], body: Json, *, wait: bool = True) -> None:
        """Wait for the next second: times are whole seconds, and Volcano breaks ties by uid."""
        self._create(resource, body)
        if wait:
            time.sleep(1.0 - time.time() % 1.0)

    def _create(self, resource: Resource[Any], body: Json) -> None:
        self._client.create(resource, body)
        if "status" in body:
            with contextlib.suppress(NotFound):  # no such subresource: create stored it
                self._write_status(resource, body)

    def _write_status(self, resource: Resource[Any], body: Json) -> None:
        meta = body["metadata"]
        self._client.patch(
            resource, meta["name"], {"status": body["status"]},
            namespace=meta.get("namespace"), subresource="status",
        )  # fmt: skip

    def _placed_pods_run(self) -> bool:
        pods = self._client.list(PODS, namespace=NAMESPACE)
        return all(p["status"]["phase"] == "Running" for p in pods if p["spec"].get("nodeName"))

    def _kinds_are_served(self) -> bool:
        try:
            for resource in (PODGROUPS, QUEUES, HYPER_NODES, NUMA_TOPOLOGIES):
                self._client.list(resource)
        except KubeError:
            return False
        return True

    def _settle(self, log: Path) -> None:
        deadline = time.monotonic() + LIMIT_S
        last, quiet_since = None, 0
        while True:
            sessions = _sessions(log)
            state = (self._places(), self._phases())
            if state != last:
                last, quiet_since = state, max(sessions, 1)
            elif sessions >= quiet_since + QUIET_SESSIONS:
                return
            if time.monotonic() > deadline:
                end = "".join(log.read_text(errors="replace").splitlines(keepends=True)[-9:])
                raise Restless(f"Volcano does not settle: {state}\n{end}")
            if self._cluster.processes.has_ended(volcano.SCHEDULER.name):
                self._cluster.processes.restart(volcano.SCHEDULER.name)  # as a Deployment would
            time.sleep(_POLL_S)

    def _places(self) -> list[tuple[str, str, bool]]:
        return [
            (
                pod["metadata"]["name"],
                pod["spec"].get("nodeName", ""),
                "deletionTimestamp" in pod["metadata"],
            )
            for pod in self._client.list(PODS, namespace=NAMESPACE)
        ]

    def _phases(self) -> dict[str, str]:
        return {
            group["metadata"]["name"]: (group.get("status") or {}).get("phase", "")
            for group in self._client.list(PODGROUPS, namespace=NAMESPACE)
        }

    def _until(self, condition: Any) -> None:
        try:
            until(condition, patience_s=LIMIT_S)
        except TimeoutError as error:
            raise Restless("the cluster does not settle") from error


def _sessions(log: Path) -> int:
    return log.read_text(errors="replace").count("Open Session") if log.exists() else 0


def volcano_crds() -> Iterator[Json]:
    """Yield Volcano's CRDs from its Go module."""
    words = ["go", "list", "-m", "-f", "{{.Dir}}", volcano.SCHEDULER.module]
    where = subprocess.check_output(words, cwd=volcano.SCHEDULER.folder, text=True).strip()
    for path in sorted((Path(where) / "config" / "crd").glob("*/bases/*.yaml")):
        yield yaml.safe_load(path.read_text())


def golden(file: str) -> Path:
    return HERE / f"{file}.golden.json"


def recorded(file: str) -> Json:
    path = golden(file)
    found: Json = json.loads(path.read_text()) if path.exists() else {}
    return found


def keep(case: Case, result: Json) -> None:
    wanted = [c.name for c in catalogue.cases() if c.file == case.file]
    every = {**recorded(case.file), case.name: result}
    text = json.dumps({name: every[name] for name in wanted if name in every}, indent=1)
    golden(case.file).write_text(text + "\n")


def record(recorder: Recorder, case: Case) -> str:
    """Return an error message; empty on success."""
    try:
        with extender.answering(case) as asked, load.answering(asked) as source:
            results = [recorder.run(source) for _ in range(RUNS)]
    except Restless as error:
        return f"{case}: {error}"
    if len({json.dumps(outcome.comparable(r, case.compare), sort_keys=True) for r in results}) > 1:
        return f"{case}: runs differ:\n" + "\n".join(json.dumps(r) for r in results)
    keep(case, {"volcano": volcano.SCHEDULER.version, **results[0]})
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fidelity.record")
    parser.add_argument("--missing", action="store_true", help="only cases not recorded yet")
    parser.add_argument("parts", nargs="*", help="only cases with one of these in their name")
    given = parser.parse_args()
    wanted = [
        case
        for case in catalogue.cases()
        if (not given.parts or any(part in str(case) for part in given.parts))
        and not (given.missing and case.name in recorded(case.file))
    ]
    failures = []
    with (
        tempfile.TemporaryDirectory(prefix="hekla-record-") as directory,
        KubeCluster(Path(directory)) as cluster,
        cluster.client() as client,
    ):
        recorder = Recorder(cluster, client)
        recorder.prepare()
        for case in wanted:
            print(case, flush=True)
            failures.append(record(recorder, case))
    if any(failures):
        raise SystemExit("\n".join(filter(None, failures)))


if __name__ == "__main__":
    main()
