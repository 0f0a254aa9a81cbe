"""Prepare what a container needs before its process starts: devices, volumes, network, variables.

A `ContainerSetup` belongs to one pod. `prepare` reads sources and creates volumes, and can be
called again when something was missing; `launch` and `exec_command` return command lines.

Note: an agent that adopts a running pod has not prepared anything, so `exec_command` calls
`prepare`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from hekla.api.numa import STATIC
from hekla.api.pod_resources import pod_limits
from hekla.nodeagent import sandbox
from hekla.nodeagent.cgroups import Cgroups, Group, Limits
from hekla.nodeagent.cpu_manager import CpuManager
from hekla.nodeagent.device_manager import (
    GPU_CHECKPOINT,
    SHARES_CHECKPOINT,
    DeviceManager,
    requested_shares,
)
from hekla.nodeagent.environment import (
    MissingReference,
    Sources,
    command_line,
    container_environment,
)
from hekla.nodeagent.errors import AllocationError
from hekla.nodeagent.gpus import requested_gpus
from hekla.nodeagent.images import Environment, Images, NotMapped
from hekla.nodeagent.network import BridgeNetwork, NetworkError
from hekla.nodeagent.volumes import VolumeError, Volumes
from hekla.units.clock import Clock
from hekla.units.cpusets import format_cpuset
from hekla.units.objects import Object
from hekla.units.quantity import parse_quantity

MAX_PROCESSES = 32_768


@dataclass
class NodeContext:
    """What all pod workers of a node share."""

    directory: Path
    clock: Clock
    images: Images
    cgroups: Cgroups
    isolate: sandbox.Isolation
    network: BridgeNetwork | None
    """None if pods use the host network."""
    devices: DeviceManager
    cpus: CpuManager
    on_cpus_changed: Callable[[], None]
    """Called when exclusive CPUs were assigned, so that other containers leave them."""
    address_of: Callable[[str, str], str]
    """(namespace, host name) -> address"""
    node: Object
    report: Callable[[Object, Object], Awaitable[None]]
    """(pod, status): write the status."""
    fetch_sources: Callable[[Object], Awaitable[Sources]]
    event: Callable[[Object, Literal["Normal", "Warning"], str, str], None]
    """(pod, type, reason, message)"""


class CannotStart(Exception):
    """A container has to wait; `reason` is the reason in its status."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """The command line, variables and cgroup of a container process."""

    line: list[str]
    variables: dict[str, str]
    group: Group | None


class ContainerSetup:
    """Prepares the containers of one pod."""

    def __init__(self, pod: Object, context: NodeContext, address: str) -> None:
        self._pod = pod
        self._context = context
        self._address = address
        self._uid = str(pod["metadata"]["uid"])
        self.directory = context.directory / "pods" / self._uid
        self._sources: Sources | None = None
        self._volumes: dict[str, Path] | None = None

    def path(self, container: str, attempt: int, kind: str) -> Path:
        """Return a file of one run of a container: its log, exit code, …"""
        return self.directory / "containers" / container / f"{attempt}.{kind}"

    def group_name(self, container: str) -> str:
        return f"{self._uid}-{container}"

    def forget(self) -> None:
        """Prepare again: something was missing."""
        self._sources = self._volumes = None

    async def prepare(self) -> None:
        """Read sources and create volumes, once."""
        if self._sources is None:
            self._sources = await self._context.fetch_sources(self._pod)
        if self._volumes is None:
            volumes = Volumes(
                self._pod,
                self.directory / "volumes",
                self._context.directory / "claims",
                self._sources,
            )
            self._volumes = volumes.make(node=self._context.node, pod_ip=self._address)

    async def launch(self, container: Object, attempt: int) -> LaunchSpec:
        """Return how to start the next run of a container; CannotStart if it has to wait."""
        try:
            self._allocate_gpus()
            await self.prepare()
            return self._launch_spec(container, attempt)
        except (MissingReference, AllocationError, VolumeError) as error:
            raise CannotStart("CreateContainerConfigError", str(error)) from error
        except NotMapped as error:
            raise CannotStart("ImageNotMapped", str(error)) from error
        except NetworkError as error:
            message = f"the pod network cannot be created: {error}"
            raise CannotStart("CreateContainerConfigError", message) from error
        except OSError as error:
            raise CannotStart("CreateContainerError", str(error)) from error

    def _launch_spec(self, container: Object, attempt: int) -> LaunchSpec:
        name = container["name"]
        environment, variables = self._environment(container)
        command = command_line(container, variables)
        if not command:
            raise VolumeError(
                f"container {name!r} has no command: an image that is mapped to this machine has "
                "no entry point; set command"
            )
        if self._context.isolate == "none":
            command = [self._resolve_names(word) for word in command]
        network = self._network()
        up = self.path(name, attempt, "up")
        up.parent.mkdir(parents=True, exist_ok=True)
        up.unlink(missing_ok=True)
        group = self._make_group(container)
        line = sandbox.wrap(
            command,
            exit_file=self.path(name, attempt, "exit"),
            directory=self._working_directory(container),
            hostname=self._hostname,
            mounts=self._mounts(container),
            scratch=self._scratch(name),
            root=environment.path if environment.kind == "rootfs" else "",
            network=network,
            isolate=self._context.isolate,
        )
        variables |= {"HEKLA_UP": str(up)} | sandbox.variables(self._context.isolate)
        if group is not None:
            variables["HEKLA_CGROUPS"] = " ".join(map(str, group.paths))
        return LaunchSpec(line, variables, group)

    async def exec_command(
        self, container: Object, pid: int, command: list[str]
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command line and variables that run a command in a running container."""
        await self.prepare()
        environment, variables = self._environment(container)
        line = sandbox.enter(
            pid,
            self._working_directory(container),
            command,
            isolate=self._context.isolate,
            root=environment.path if environment.kind == "rootfs" else "",
        )
        return line, variables

    def _allocate_gpus(self) -> None:
        """Allocate GPUs and write the checkpoints before they are used."""
        if wanted := requested_gpus(self._pod):
            given = self._context.devices.allocate(self._uid, wanted)
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            (self.directory / GPU_CHECKPOINT).write_text(" ".join(map(str, given)))
        gpus = self._context.devices
        if self._uid not in gpus.shared:
            gpus.share(self._uid, requested_shares(self._pod, gpus))
        note = self.directory / SHARES_CHECKPOINT
        if (parts := gpus.shared.get(self._uid)) and not note.exists():
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            note.write_bytes(msgspec.json.encode(parts))

    def _make_group(self, container: Object) -> Group | None:
        """Create the cgroup of a container, with exclusive CPUs if it requests them."""
        cpus, limits = self._context.cpus, _limits(container)
        own = cpus.allocate(self._pod, container)
        if own:
            cpus.checkpoint(self._uid, self.directory)
        if cpus.policy == STATIC:
            limits = replace(limits, cpus=format_cpuset(own or cpus.shared_pool()))
        group = self._context.cgroups.make(self.group_name(container["name"]), limits)
        if own:
            if group is None:
                raise OSError("exclusive CPUs need a cgroup, which cannot be created")
            self._context.on_cpus_changed()
        return group

    def _network(self) -> Path | None:
        """Return the network namespace of the pod.

        Created with the first container, removed with the pod.
        """
        network = self._context.network
        if network is None or self._pod["spec"].get("hostNetwork"):
            return None
        return network.add(self._uid, self._address)

    @property
    def _hostname(self) -> str:
        return str(self._pod["spec"].get("hostname") or self._pod["metadata"]["name"])

    def _environment(self, container: Object) -> tuple[Environment, dict[str, str]]:
        assert self._sources is not None
        assert self._volumes is not None
        environment = self._context.images.resolve(container["image"])
        base = environment.variables(dict(os.environ))
        base["HOSTNAME"] = self._hostname
        base["HEKLA_POD_UID"] = self._uid
        if gpus := self._context.devices.allocated.get(self._uid):
            base["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
        base |= self._context.devices.variables(self._pod, container["name"])
        variables = container_environment(
            self._pod,
            container,
            self._sources,
            base=base,
            node=self._context.node,
            pod_ip=self._address,
        )
        if self._context.isolate == "none":
            variables = {key: self._resolve_names(value) for key, value in variables.items()}
            # Without a mount namespace a volume is not at its mount path, so a variable has its
            # path.
            for mount in container.get("volumeMounts") or ():
                key = "HEKLA_VOLUME_" + mount["name"].upper().replace("-", "_")
                variables[key] = str(self._volumes[mount["name"]])
        return environment, variables

    def _resolve_names(self, text: str) -> str:
        """Replace the names of the job's pods by addresses.

        Without isolation there is no hosts file.
        """
        subdomain = self._pod["spec"].get("subdomain")
        namespace = self._pod["metadata"]["namespace"]
        if not subdomain or f".{subdomain}" not in text:
            return text
        tail = rf"(?:\.{re.escape(namespace)}(?:\.svc(?:\.cluster\.local)?)?)?"
        return re.sub(
            rf"(?<![\w.-])([a-z0-9]([-a-z0-9]*[a-z0-9])?)\.{re.escape(subdomain)}{tail}(?![\w-])",
            lambda found: self._context.address_of(namespace, found[1]),
            text,
        )

    def _working_directory(self, container: Object) -> str:
        if container.get("workingDir"):
            return str(container["workingDir"])
        home = self.directory / "work"
        home.mkdir(exist_ok=True)
        return str(home)

    def _scratch(self, container: str) -> Path:
        """Return the directory for mount paths that the host does not have."""
        scratch = self.directory / "containers" / container / "scratch"
        scratch.mkdir(exist_ok=True)
        return scratch

    def _mounts(self, container: Object) -> list[sandbox.Mount]:
        assert self._volumes is not None
        hosts = self._context.directory / "hosts" / self._pod["metadata"]["namespace"]
        mounts = [sandbox.Mount(hosts, "/etc/hosts")] if hosts.exists() else []
        if self._context.network is not None and not self._context.network.reaches_out:
            mounts.append(sandbox.Mount(self._no_name_server(), "/etc/resolv.conf"))
        for mount in container.get("volumeMounts") or ():
            source = self._volumes[mount["name"]]
            if mount.get("subPath"):
                source = source / mount["subPath"]
                if not source.exists():
                    source.mkdir(parents=True)
            mounts.append(sandbox.Mount(source, mount["mountPath"], bool(mount.get("readOnly"))))
        return mounts

    def _no_name_server(self) -> Path:
        """Return a resolv.conf for pods without a name server, with which lookups fail at once."""
        path = self._context.directory / "resolv.conf"
        if not path.exists():
            path.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
        return path


def _limits(container: Object) -> Limits:
    limits = pod_limits({"containers": [container]})
    memory, cpu = limits.get("memory"), limits.get("cpu")
    return Limits(
        memory_bytes=memory.value() if memory is not None else None,
        cpu_milli=cpu.milli_value() if cpu is not None else None,
        processes=_process_limit(container),
    )


def _process_limit(container: Object) -> int:
    given = ((container.get("resources") or {}).get("limits") or {}).get("hekla.io/processes")
    return parse_quantity(given).value() if given is not None else MAX_PROCESSES
