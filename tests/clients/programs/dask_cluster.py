"""Create a dask-kubernetes cluster of two workers on Volcano's scheduler, or scale it to three.

Runs in the Python environment of the clients, with KUBECONFIG. Arguments: the namespace, and `make`
or `scale`.
"""

import asyncio
import sys

from dask_kubernetes.operator import make_cluster_spec
from dask_kubernetes.operator._objects import DaskCluster, DaskWorkerGroup


async def make(namespace: str) -> None:
    wanted = {"requests": {"cpu": "500m"}, "limits": {"cpu": "500m"}}
    spec = make_cluster_spec(name="demo", n_workers=2, image="none", resources=wanted, env={})
    for part in ("worker", "scheduler"):
        spec["spec"][part]["spec"]["schedulerName"] = "volcano"
    cluster = await DaskCluster(spec, namespace=namespace)
    await cluster.create()


async def scale(namespace: str) -> None:
    group = await DaskWorkerGroup.get("demo-default", namespace=namespace)
    await group.scale(3)


asyncio.run({"make": make, "scale": scale}[sys.argv[2]](sys.argv[1]))
