"""A small operator: annotates each Volcano Job of a namespace with the phases that it had.

Runs in the Python environment of the clients, with KUBECONFIG. Argument: the namespace. Ends when a
job has completed.
"""

import asyncio
import sys
from typing import Any

import kopf

NAMESPACE = sys.argv[1]
JOBS = ("batch.volcano.sh", "v1alpha1", "jobs")
done = asyncio.Event()


@kopf.on.create(*JOBS)
def greet(patch: kopf.Patch, body: kopf.Body, **_: Any) -> None:
    patch.metadata.annotations["example.com/greeted"] = "yes"
    kopf.info(body, reason="Greeted", message="seen by a small operator")


@kopf.on.field(*JOBS, field="status.state.phase")
def note(old: str | None, new: str | None, patch: kopf.Patch, **_: Any) -> None:
    print("phase", old, new, flush=True)
    patch.metadata.annotations[f"example.com/saw-{str(new).lower()}"] = "yes"


@kopf.on.event(*JOBS)
async def follow(body: kopf.Body, **_: Any) -> None:
    marks = body.metadata.annotations
    if "example.com/saw-completed" in marks:
        done.set()


async def main() -> None:
    await kopf.operator(namespaces=[NAMESPACE], standalone=True, stop_flag=done)


asyncio.run(main())
