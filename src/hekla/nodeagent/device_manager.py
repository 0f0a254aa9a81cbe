"""The GPUs of this machine and which pod has which, as kubelet's device manager."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hekla.api import wellknown
from hekla.api.devices import MAX_NUMBER, DeviceRequest, decode, gpu_indices, vgpu_request
from hekla.nodeagent.errors import AllocationError
from hekla.nodeagent.gpu_environment import gpu_share_environment, mps_environment
from hekla.nodeagent.gpus import (
    HAMI_CORE,
    MPS,
    Gpu,
    GpuShare,
    device_limits,
    pod_device_limit,
    requests_gpu_shares,
)
from hekla.units.objects import Object

MPS_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"
"""In the agent's environment: the directory of NVIDIA's MPS daemon, if it runs."""
GPU_CHECKPOINT = "gpus"
"""In a pod's directory: the indices of its GPUs."""
SHARES_CHECKPOINT = "gpu-shares"
"""In a pod's directory: its GPU shares at its first start."""


@dataclass
class DeviceManager:
    """Which pod has which GPUs, by index.

    Whole GPUs are chosen here; shares are chosen by the scheduler, in annotations of the pod.
    """

    gpus: Sequence[Gpu]
    allocated: dict[str, list[int]] = field(default_factory=dict)
    shared: dict[str, list[GpuShare]] = field(default_factory=dict)
    mps_directory: str = ""

    @property
    def count(self) -> int:
        return len(self.gpus)

    @property
    def mode(self) -> str:
        """What enforces shares: HAMi's library, or NVIDIA's MPS daemon."""
        return MPS if self.mps_directory else HAMI_CORE

    def allocate(self, uid: str, wanted: int) -> list[int]:
        """Allocate whole GPUs to a pod, or return those it has.

        AllocationError if too few are free. GPUs that are gone since they were allocated, at an
        earlier start of the agent, are replaced.
        """
        if any(index >= self.count for index in self.allocated.get(uid, ())):
            del self.allocated[uid]
        if uid not in self.allocated:
            used = {index for given in self.allocated.values() for index in given}
            used |= {share.index for shares in self.shared.values() for share in shares}
            free = [index for index in range(self.count) if index not in used]
            if len(free) < wanted:
                raise AllocationError(f"needs {wanted} GPUs, and {len(free)} are free")
            self.allocated[uid] = free[:wanted]
        return self.allocated[uid]

    def share(self, uid: str, shares: Sequence[GpuShare]) -> None:
        """Allocate shares to a pod; AllocationError if a GPU has not enough left."""
        gone = [s.index for s in self.shared.get(uid, ()) if s.index >= self.count]
        if gone:
            raise AllocationError(
                f"has a share of GPU {gone[0]}, which this machine does not have any more; delete "
                "the pod, and it is placed again"
            )
        if uid in self.shared or not shares:
            return
        whole = {index for indices in self.allocated.values() for index in indices}
        others = [share for each in self.shared.values() for share in each]
        for index in sorted({share.index for share in shares}):
            if index in whole:
                raise AllocationError(
                    f"requests a share of GPU {index}, which is allocated to another pod as a whole"
                )
            here = [share for share in (*others, *shares) if share.index == index]
            memory, cores = sum(share.memory for share in here), sum(share.cores for share in here)
            alone = any(share.cores >= 100 for share in here) and len(here) > 1
            if alone or cores > 100 or memory > self.gpus[index].memory:
                raise AllocationError(
                    f"requests a share of GPU {index}, which has not enough left; "
                    "the pod waits until others end"
                )
        self.shared[uid] = list(shares)

    def index_of(self, gpu: str) -> int:
        """Return the index of a GPU by its id or number, with or without a MIG suffix."""
        uuid = gpu.partition("[")[0]
        for index, known in enumerate(self.gpus):
            if uuid in (known.id, str(index)):
                return index
        raise AllocationError(f"is assigned to GPU {gpu!r}, which this machine does not have")

    def visible(self, pod: Object, container: str) -> list[int]:
        """Return the indices of the GPUs that a container may use, whole or in part."""
        uid = pod["metadata"]["uid"]
        shares = [s.index for s in self.shared.get(uid, ()) if s.container in ("", container)]
        return sorted({*self.allocated.get(uid, ()), *shares})

    def variables(self, pod: Object, container: str) -> dict[str, str]:
        """Return the environment variables that name a container's GPU shares."""
        if not requests_gpu_shares(pod):
            return {}
        shares = self.shared.get(pod["metadata"]["uid"], ())
        variables = gpu_share_environment(shares, pod, container, self.gpus)
        if self.mps_directory and variables["CUDA_VISIBLE_DEVICES"]:
            own = [share for share in shares if share.container in ("", container)]
            variables |= {MPS_DIRECTORY: self.mps_directory, **mps_environment(own)}
        return variables

    def release(self, uid: str) -> None:
        self.allocated.pop(uid, None)
        self.shared.pop(uid, None)

    def restore(self, pods: Path) -> None:
        """Read the checkpoints of pods that an earlier agent started."""
        for path in pods.glob(f"*/{GPU_CHECKPOINT}"):
            with contextlib.suppress(OSError, ValueError):
                self.allocated[path.parent.name] = [int(word) for word in path.read_text().split()]
        for path in pods.glob(f"*/{SHARES_CHECKPOINT}"):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                shares = msgspec.json.decode(path.read_bytes(), type=list[GpuShare])
                if all(0 <= share.index < self.count for share in shares):
                    self.shared[path.parent.name] = shares


def requested_shares(pod: Object, devices: DeviceManager) -> list[GpuShare]:
    """Return the GPU shares of a pod: annotations name the GPUs, limits their number and size.

    The annotations of a pod without such limits are ignored.
    """
    annotations = pod["metadata"].get("annotations") or {}
    wanted = [
        (each["name"], request)
        for each in pod["spec"]["containers"]
        for request in (vgpu_request(device_limits(each)),)
        for _ in range(min(request.number, MAX_NUMBER))
    ]
    if wanted and wellknown.VGPU_IDS_NEW in annotations:
        named = [each.device for each in decode(annotations[wellknown.VGPU_IDS_NEW])]
        _check_number(wellknown.VGPU_IDS_NEW, len(wanted), len(named))
        return [
            _share(name, request, devices, devices.index_of(gpu))
            for (name, request), gpu in zip(wanted, named, strict=True)
        ]
    number = pod_device_limit(pod, wellknown.GPU_NUMBER)
    memory = pod_device_limit(pod, wellknown.GPU_MEMORY)
    if (number or memory) and wellknown.GPU_INDEX in annotations:
        named = gpu_indices(annotations)
        _check_number(wellknown.GPU_INDEX, number or 1, len(named))
        request = DeviceRequest(1, percent=100, cores=100) if number else DeviceRequest(1, memory)
        return [_share("", request, devices, devices.index_of(gpu)) for gpu in named]
    return []


def _share(container: str, request: DeviceRequest, devices: DeviceManager, index: int) -> GpuShare:
    memory = (
        devices.gpus[index].memory * request.percent // 100 if request.percent else request.memory
    )
    return GpuShare(container, index, memory, request.cores)


def _check_number(annotation: str, wanted: int, named: int) -> None:
    if named != wanted:
        raise AllocationError(
            f"requests {wanted} GPUs or shares, but its annotation {annotation} names {named}; "
            "only the scheduler may write it"
        )
