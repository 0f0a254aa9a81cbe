"""The GPUs of nodes and which pods hold them. Pure functions.

The scheduler writes the GPU of a share to the pod. Whole GPUs are chosen by the node (the agent, or
kubelet), which does not report them: then only their number is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hekla.api import wellknown
from hekla.api.devices import MAX_NUMBER, decode, gpu_indices, vgpu_request
from hekla.units.objects import Object
from hekla.units.quantity import NANOS, QuantityError, parse_quantity

if TYPE_CHECKING:
    from hekla.cli.capacity.usage import NodeUse, PodUse

FREE: Final = "free"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as its node registers it; memory in MiB."""

    id: str
    memory: int
    type: str


@dataclass(frozen=True, slots=True)
class Share:
    """A share of one GPU; memory in MiB, cores in percent."""

    gpu: str
    """The id of the GPU, or its index on the node."""
    memory: int
    percent: int
    cores: int


@dataclass(frozen=True, slots=True)
class GpuRow:
    """GPUs of one node and their holder."""

    node: str
    gpu: str
    """The index, or the number of GPUs (`2 of 8`) where the index is not known."""
    type: str
    memory: int
    """MiB that the pod holds, or that are free; 0 if not known."""
    namespace: str = ""
    pod: str = ""
    job: str = ""
    user: str = ""


def gpus_of(node: Object) -> tuple[Gpu, ...]:
    """Return the GPUs that a node registers in its annotation."""
    text = (node["metadata"].get("annotations") or {}).get(wellknown.NODE_VGPU_REGISTER) or ""
    found = []
    for entry in str(text).split(":"):
        words = entry.split(",")
        if len(words) >= 4 and words[2].isdecimal():
            found.append(Gpu(words[0], int(words[2][:15]), words[3]))
    return tuple(found)


def shares_of(pod: Object) -> tuple[Share, ...]:
    """Return the shares of GPUs that the scheduler has assigned to a pod.

    The annotation names the GPUs, the limits of the pod the amounts: the node does the same.
    """
    notes = pod["metadata"].get("annotations") or {}
    containers = (pod.get("spec") or {}).get("containers") or ()
    limits = [_limits(container) for container in containers]
    if notes.get(wellknown.VGPU_IDS_NEW):
        wanted = [
            request
            for each in limits
            if wellknown.VGPU_NUMBER in each or wellknown.VGPU_MEMORY in each
            for request in (vgpu_request(each),)
            for _ in range(min(request.number, MAX_NUMBER))
        ]
        named = decode(str(notes[wellknown.VGPU_IDS_NEW]))
        return tuple(
            Share(each.device.partition("[")[0], request.memory, request.percent, request.cores)
            for each, request in zip(named, wanted, strict=False)
        )
    memory = sum(each.get(wellknown.GPU_MEMORY, 0) for each in limits)
    number = sum(each.get(wellknown.GPU_NUMBER, 0) for each in limits)
    if not memory and not number:
        return ()
    return tuple(
        Share(index, 0 if number else memory, 100 if number else 0, 0)
        for index in gpu_indices(notes)
    )


def _limits(container: Mapping[str, Any]) -> dict[str, int]:
    found = {}
    for name, text in ((container.get("resources") or {}).get("limits") or {}).items():
        try:
            found[name] = parse_quantity(text).nanos // NANOS
        except QuantityError:
            continue
    return found


Holders = Mapping[tuple[str, str], tuple[str, str]]
"""Job and user by the namespace and name of a PodGroup."""


def gpu_rows(nodes: Iterable[NodeUse], pods: Iterable[PodUse], holders: Holders) -> list[GpuRow]:
    """Return the GPUs of all nodes with their holders, and the free ones."""
    by_node: dict[str, list[PodUse]] = {}
    for pod in pods:
        if pod.is_on_node and (pod.shares or pod.whole_gpus):
            by_node.setdefault(pod.node, []).append(pod)
    return [row for use in nodes for row in _of_node(use, by_node.get(use.info.name, []), holders)]


def _of_node(use: NodeUse, pods: list[PodUse], holders: Holders) -> Iterator[GpuRow]:
    info = use.info
    count = info.gpu_count
    if not count and not pods:
        return
    kinds = ", ".join(sorted({gpu.type for gpu in info.gpus}))
    places = {gpu.id: index for index, gpu in enumerate(info.gpus)}
    shared: set[int] = set()
    shares, wholes = [], []
    taken = 0
    for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.name)):
        job, user = holders.get((pod.namespace, pod.group), ("", ""))
        who = (pod.namespace, pod.name, job, user)
        for share in pod.shares:
            index = places.get(share.gpu, int(share.gpu) if share.gpu.isdecimal() else -1)
            gpu = info.gpus[index] if 0 <= index < len(info.gpus) else Gpu(share.gpu, 0, kinds)
            shared.add(index)
            memory = gpu.memory * share.percent // 100 if share.percent else share.memory
            name = str(index) if index >= 0 else share.gpu
            shares.append(GpuRow(info.name, name, gpu.type, memory, *who))
        if pod.whole_gpus:
            taken += pod.whole_gpus
            each = {gpu.memory for gpu in info.gpus}
            memory = pod.whole_gpus * each.pop() if len(each) == 1 else 0
            name = f"{pod.whole_gpus} of {count}"
            wholes.append(GpuRow(info.name, name, kinds, memory, *who))
    yield from sorted(shares, key=lambda row: (row.gpu, row.namespace, row.pod))
    yield from wholes
    free = [index for index in range(count) if index not in shared]
    if taken:
        left = max(0, len(free) - taken)
        if left:
            yield GpuRow(info.name, f"{left} of {count}", kinds, 0, pod=FREE)
        return
    for index in free:
        known = info.gpus[index] if index < len(info.gpus) else Gpu("", 0, kinds)
        yield GpuRow(info.name, str(index), known.type, known.memory, pod=FREE)


def as_json(row: GpuRow) -> dict[str, Any]:
    """Return a row for programs."""
    is_free = row.pod == FREE and not row.namespace
    return {
        "node": row.node,
        "gpu": row.gpu,
        "type": row.type,
        "memoryMiB": row.memory,
        "free": is_free,
        "namespace": row.namespace,
        "pod": "" if is_free else row.pod,
        "job": row.job,
        "user": row.user,
    }
