"""nodeinfo.volcano.sh/v1alpha1: Numatopology, the NUMA layout of the node of the same name.

A node agent writes it, the scheduler reads it. CPU sets are text such as `0-3,8`.
"""

from __future__ import annotations

from msgspec import field

from hekla.api.meta import Model, Object


class ResourceInfo(Model):
    allocatable: str = ""
    capacity: int = 0


class CpuInfo(Model):
    numa: int = 0
    socket: int = 0
    core: int = 0


class ContainerAllocation(Model):
    name: str = ""
    allocations: dict[str, str] = field(default_factory=dict)


class PodAllocation(Model):
    uid: str = ""
    name: str = ""
    namespace: str = ""
    container_allocations: tuple[ContainerAllocation, ...] = ()


class NumatopologySpec(Model):
    policies: dict[str, str] = field(default_factory=dict)
    res_reserved: dict[str, str] = field(default_factory=dict)
    numares: dict[str, ResourceInfo] = field(default_factory=dict)
    cpu_detail: dict[str, CpuInfo] = field(default_factory=dict)
    pod_allocations: tuple[PodAllocation, ...] = ()


class Numatopology(Object):
    spec: NumatopologySpec = field(default_factory=NumatopologySpec)
