"""The scheduler's configuration where Volcano's cases change it, passed on to hekla.

Volcano's suites change a ConfigMap of their own release, which Volcano's scheduler has mounted as
a file. hekla reads `volcano-scheduler-configmap`: a thread copies the text, as a kubelet would.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hekla.api import wellknown
from hekla.kube.resources import CONFIGMAPS
from hekla.kube.sync_client import SyncClient
from tools.kube.cluster import KubeCluster

_CHANGED_BY_CASES = "integration-scheduler-configmap"
_SPACE = wellknown.SYSTEM_NAMESPACE
_KEY = "volcano-scheduler-ci.conf"
_CONFIGURATION = Path(__file__).with_name("scheduler.yaml")
_POLL_S = 0.1


@contextmanager
def mirrored(cluster: KubeCluster) -> Iterator[None]:
    """Set the configuration of the suites, and pass on what cases change, until the end."""
    ended = threading.Event()
    with cluster.client() as client:
        reset(client)
    thread = threading.Thread(target=_pass_on, args=(cluster, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def reset(client: SyncClient) -> None:
    """Write the configuration of the suites, whatever a case left there."""
    text = _CONFIGURATION.read_text()
    _write(client, _CHANGED_BY_CASES, _KEY, text)
    _write(client, wellknown.SCHEDULER_CONFIG_MAP, wellknown.SCHEDULER_CONFIG_KEY, text)


def _pass_on(cluster: KubeCluster, ended: threading.Event) -> None:
    passed_on = ""
    with cluster.client() as client:
        while not ended.wait(_POLL_S):
            source = client.get(CONFIGMAPS, _CHANGED_BY_CASES, namespace=_SPACE)
            text = source["data"][_KEY]
            if text != passed_on:
                _write(client, wellknown.SCHEDULER_CONFIG_MAP, wellknown.SCHEDULER_CONFIG_KEY, text)
                passed_on = text


def _write(client: SyncClient, name: str, key: str, text: str) -> None:
    found = client.find(CONFIGMAPS, name, namespace=_SPACE)
    if found is None:
        metadata = {"name": name, "namespace": _SPACE}
        client.create(
            CONFIGMAPS,
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {key: text}},
        )
    elif found["data"].get(key) != text:
        client.replace(CONFIGMAPS, {**found, "data": {**found["data"], key: text}})
