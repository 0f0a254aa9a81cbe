"""What a container of an image gets for its GPUs, by the CDI specs of this machine."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hekla.nodeagent.cdi import GPU_KIND, BindMount, CdiSpecs, Hook, InvalidSpec, Placed, Registry
from hekla.nodeagent.cdi_hooks import LIBRARIES, Link, links
from hekla.nodeagent.errors import AllocationError
from hekla.nodeagent.gpus import SIMULATED_PREFIX, Gpu
from hekla.nodeagent.sandbox import Mount

SEARCH_PATH: Final = "LD_LIBRARY_PATH"


@dataclass(frozen=True, slots=True)
class GpuEdits:
    mounts: list[Mount] = field(default_factory=list)
    """Of device nodes and files."""
    variables: dict[str, str] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)

    def added_to(self, base: dict[str, str]) -> dict[str, str]:
        """Return the variables of an image with those of the GPUs."""
        variables = base | self.variables
        folders = variables.get(SEARCH_PATH, "").split(":")
        if self.links and LIBRARIES not in folders:
            variables[SEARCH_PATH] = ":".join([*filter(None, folders), LIBRARIES])
        return variables


def gpu_edits(
    specs: CdiSpecs, gpus: Sequence[tuple[int, Gpu]], *, has_all_devices: bool = False
) -> GpuEdits | None:
    """Return the edits for GPUs with their indices; None if no spec describes GPUs.

    `has_all_devices` means that the container has the machine's own /dev.
    """
    if not gpus:
        return None
    registry = specs.registry()
    names = [_name(registry, index, gpu) for index, gpu in gpus]
    if not all(names) or not (registry.has_kind(GPU_KIND) or registry.problems):
        return None
    placed = registry.edits([name for name in names if name])
    mounts = [] if has_all_devices else _device_nodes(placed)
    files = [(mount, each.where) for each in placed for mount in each.edits.mounts or ()]
    mounts += [_bind(mount, where) for mount, where in files]
    hooks: list[tuple[Hook, str]] = [
        (hook, f"{each.where}.hooks[{number}]")
        for each in placed
        for number, hook in enumerate(each.edits.hooks or ())
    ]
    pairs = [variable.partition("=") for each in placed for variable in each.edits.env or ()]
    return GpuEdits(
        mounts=list(dict.fromkeys(mounts)),
        variables={name: value for name, _, value in pairs},
        links=links(hooks, [mount for mount, _ in files]),
    )


def _name(registry: Registry, index: int, gpu: Gpu) -> str:
    """Return the device of a GPU: by its id, or else by its index, as nvidia-ctk names them."""
    by_id = f"{GPU_KIND}={gpu.id}"
    if by_id in registry.devices:
        return by_id
    return "" if gpu.id.startswith(SIMULATED_PREFIX) else f"{GPU_KIND}={index}"


def _device_nodes(placed: Sequence[Placed]) -> list[Mount]:
    mounts = []
    for each in placed:
        for number, node in enumerate(each.edits.device_nodes or ()):
            where, source = f"{each.where}.deviceNodes[{number}]", node.host_path or node.path
            mode = _stat(source, where).st_mode
            if not (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)):
                raise InvalidSpec(f"{where}: {source} is not a device")
            mounts.append(Mount(Path(source), node.path))
    return mounts


def _bind(mount: BindMount, where: str) -> Mount:
    _stat(mount.host_path, f"{where}.mounts")
    return Mount(Path(mount.host_path), mount.container_path, "ro" in (mount.options or ()))


def _stat(path: str, where: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError as error:
        raise AllocationError(
            f"needs {path} for its GPUs ({where}): {error.strerror}; load the driver (`nvidia-smi` "
            "does so), and write the spec again after an update of the driver"
        ) from error
