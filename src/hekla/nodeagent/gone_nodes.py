"""Remove nodes of this machine that an earlier start had and this one has not.

Without that, simulated nodes of an earlier start would stay Ready and get pods that nothing runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from hekla.api.wellknown import LOCAL_NODE, SIMULATED_NODE, PodPhase
from hekla.kube.client import Client
from hekla.kube.resources import NODES, PODS
from hekla.units.objects import Object

log = logging.getLogger("hekla.nodeagent")

MAX_PARALLEL_REQUESTS = 64


async def remove_gone_nodes(client: Client, present: Collection[str]) -> None:
    """Delete the nodes that `hekla up` made and that are not present, and their unfinished pods.

    Call it before controllers run: they then see pods that are missing, not pods that fail.
    """
    gone: set[str] = set()
    for label in (LOCAL_NODE, SIMULATED_NODE):
        listed = await client.list(NODES, label_selector=label)
        gone |= {str(node["metadata"]["name"]) for node in listed} - set(present)
    if not gone:
        return
    pods = [pod for pod in await client.list(PODS) if _is_unfinished_on(pod, gone)]
    log.warning("removing %d nodes that are gone, and %d pods on them", len(gone), len(pods))
    limit = asyncio.Semaphore(MAX_PARALLEL_REQUESTS)

    async def delete_pod(pod: Object) -> None:
        metadata = pod["metadata"]
        async with limit:
            await client.delete(
                PODS, metadata["name"], namespace=metadata["namespace"],
                grace_period_s=0, uid=metadata["uid"], missing_ok=True,
            )  # fmt: skip

    async def delete_node(name: str) -> None:
        async with limit:
            await client.delete(NODES, name, missing_ok=True)

    await asyncio.gather(*map(delete_pod, pods))
    await asyncio.gather(*map(delete_node, gone))


def _is_unfinished_on(pod: Object, nodes: Collection[str]) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return pod["spec"].get("nodeName") in nodes and phase not in (
        PodPhase.SUCCEEDED,
        PodPhase.FAILED,
    )
