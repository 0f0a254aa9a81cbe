"""Restore recorded objects on another cluster.

Note: a server assigns UIDs, and Volcano builds names from them. So every object is created with the
UIDs that its owners have on the new cluster, wherever they occur.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tools.kube.cluster import KubeCluster
from tools.kube.gobuild import ensure
from tools.kube.parts import CONTROLLER_MANAGER
from tools.waiting import until

from hekla.cli.release import resource_of
from hekla.kube.resources import NAMESPACES, PODGROUPS, SERVICE_ACCOUNTS
from hekla.units.objects import Object

RECORD = Path(__file__).parent / "data" / "volcano.json.gz"
_SET_BY_SERVER = ("uid", "creationTimestamp")


def load() -> Object:
    found: Object = json.loads(gzip.decompress(RECORD.read_bytes()))
    return found


def restore(cluster: KubeCluster, objects: list[Object], namespace: str) -> None:
    """Owners come first. Kubernetes' controllers are paused until all objects exist."""
    with cluster.client() as client:
        client.create(NAMESPACES, {"metadata": {"name": namespace}})
        until(lambda: client.find(SERVICE_ACCOUNTS, "default", namespace=namespace))
        cluster.processes.stop(CONTROLLER_MANAGER.name)
        renamed: dict[str, str] = {}
        for recorded in objects:
            obj = _with_uids(recorded, renamed)
            kind, meta = resource_of(obj), obj["metadata"]
            was = recorded["metadata"]["uid"]
            for key in _SET_BY_SERVER:
                meta.pop(key, None)
            made: Any = client.create(kind, obj)
            renamed[was] = made["metadata"]["uid"]
            status, space = obj.get("status"), meta.get("namespace")
            if status and kind.kind != PODGROUPS.kind:
                client.patch_status(kind, meta["name"], status, namespace=space)
        cluster._start_controllers(ensure(CONTROLLER_MANAGER))


def _with_uids(obj: Object, renamed: dict[str, str]) -> Object:
    text = json.dumps(obj)
    for old, new in renamed.items():
        text = text.replace(old, new)
    found: Object = json.loads(text)
    return found
