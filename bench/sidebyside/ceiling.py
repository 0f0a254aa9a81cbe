"""The ceiling: binds the pods of given gangs without any decision.

`python -m bench.sidebyside.ceiling KUBECONFIG CASE` prints `ready` once its connections are open,
then reads numbers of complete gangs, one per line, and posts the bindings of their pods to the
nodes in turn. It has no watch. It is a separate process, as a scheduler is.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import uvloop

from bench.sidebyside import cases
from bench.sidebyside.cases import NAMESPACE, Case
from bench.sidebyside.load import IN_FLIGHT
from hekla.kube import calls, kubeconfig
from hekla.kube.client import Client


def bindings(case: Case, gang: int) -> Iterator[calls.Call]:
    for member in range(case.size):
        node = (gang * case.size + member) % case.nodes
        yield calls.bind(case.pod_name(gang, member), f"node-{node}", namespace=NAMESPACE)


async def run(config: Path, case: Case) -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    queue: asyncio.Queue[calls.Call] = asyncio.Queue()
    async with Client(kubeconfig.load(config), component="ceiling") as client:

        async def worker() -> None:
            while True:
                await client.call(await queue.get())
                queue.task_done()

        warm = calls.other("GET", "/readyz")
        await asyncio.gather(*(client.call(warm) for _ in range(IN_FLIGHT)))
        print("ready", flush=True)
        workers = [asyncio.create_task(worker()) for _ in range(IN_FLIGHT)]
        while line := await reader.readline():
            for call in bindings(case, int(line)):
                queue.put_nowait(call)
        await queue.join()
        for task in workers:
            task.cancel()


if __name__ == "__main__":
    uvloop.run(run(Path(sys.argv[1]), cases.find(sys.argv[2])))
