"""The environment variables that restrict a container to its GPU shares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hekla.api import wellknown
from hekla.nodeagent.gpus import Gpu, GpuShare, container_device_limits, visible_devices
from hekla.units.objects import Object


def gpu_share_environment(
    shares: Iterable[GpuShare], pod: Object, container: str, gpus: Sequence[Gpu]
) -> dict[str, str]:
    """Return the variables that HAMi and Volcano define.

    The visible GPUs, and the limits on each.
    """
    limits: dict[str, str] = {}
    own = [share for share in shares if share.container == container]
    if own:
        limits = {f"CUDA_DEVICE_MEMORY_LIMIT_{i}": f"{e.memory}m" for i, e in enumerate(own)}
        if cores := max(each.cores for each in own):
            limits["CUDA_DEVICE_SM_LIMIT"] = str(cores)
        visible = ",".join(gpus[each.index].id for each in own)
    else:
        amounts = container_device_limits(pod, container)
        memory = amounts.get(wellknown.GPU_MEMORY, 0)
        if memory or amounts.get(wellknown.GPU_NUMBER):
            own = [share for share in shares if not share.container]
        if not own:
            return {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
        if memory:
            limits["VOLCANO_GPU_ALLOCATED"] = str(memory)
            limits["VOLCANO_GPU_TOTAL"] = str(gpus[own[0].index].memory)
            limits["CUDA_DEVICE_MEMORY_LIMIT_0"] = f"{memory}m"
        visible = ",".join(str(each.index) for each in own)
    return {
        "CUDA_VISIBLE_DEVICES": visible_devices([(each.index, gpus[each.index]) for each in own]),
        "NVIDIA_VISIBLE_DEVICES": visible,
        **limits,
    }


def mps_environment(own: Sequence[GpuShare]) -> dict[str, str]:
    """Return the limits for NVIDIA's MPS daemon, by the device numbers that the client sees."""
    memory = ",".join(f"{i}={share.memory}M" for i, share in enumerate(own))
    limits = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": memory}
    if cores := max(share.cores for share in own):
        limits["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(cores)
    return limits
