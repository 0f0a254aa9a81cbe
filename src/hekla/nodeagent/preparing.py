"""All that a container needs before its process starts: devices, volumes, network, variables.

A `Kit` belongs to one pod. `ready` gathers what the pod's containers share, and may be called
again when something was missing; `launch` and `inside` then give command lines.

What a newcomer gets wrong: an agent that takes up a running pod has prepared nothing. Whatever
enters a container (`inside`) therefore asks for `ready` first.
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
from hekla.nodeagent.cpus import Cpus
from hekla.nodeagent.environment import (
    MissingReference,
    Sources,
    command_line,
    container_environment,
)
from hekla.nodeagent.images import Environment, Images, NotMapped
from hekla.nodeagent.machine import GPU_NOTE, PARTS_NOTE, Gpus, NotEnough, gpus_wanted, parts_of
from hekla.nodeagent.network import BridgeNetwork, NetworkError
from hekla.nodeagent.volumes import VolumeError, Volumes
from hekla.units.clock import Clock
from hekla.units.cpusets import format_cpuset
from hekla.units.objects import Object
from hekla.units.quantity import parse_quantity

MAX_PROCESSES = 32_768


@dataclass
class Surroundings:
    """What a worker needs of its agent."""

    directory: Path
    clock: Clock
    images: Images
    cgroups: Cgroups
    isolate: sandbox.Way
    network: BridgeNetwork | None
    """None where pods share the machine's network."""
    gpus: Gpus
    cpus: Cpus
    cpus_changed: Callable[[], None]
    """Somebody has CPUs of its own now: the others must leave them."""
    address_of: Callable[[str, str], str]
    """(namespace, host name) -> address"""
    node: Object
    report: Callable[[Object, Object], Awaitable[None]]
    """(pod, status) -> to the API."""
    fetch_sources: Callable[[Object], Awaitable[Sources]]
    event: Callable[[Object, Literal["Normal", "Warning"], str, str], None]
    """(pod, type, reason, message)"""


class CannotStart(Exception):
    """A container has to wait; `reason` is for its status."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start."""

    line: list[str]
    variables: dict[str, str]
    group: Group | None


class Kit:
    """What the containers of one pod are started with."""

    def __init__(self, pod: Object, around: Surroundings, address: str) -> None:
        self._pod = pod
        self._around = around
        self._address = address
        self._uid = str(pod["metadata"]["uid"])
        self.directory = around.directory / "pods" / self._uid
        self._sources: Sources | None = None
        self._volumes: dict[str, Path] | None = None

    def path(self, container: str, attempt: int, kind: str) -> Path:
        """A file of one run of a container: its log, its exit code, …"""
        return self.directory / "containers" / container / f"{attempt}.{kind}"

    def group_name(self, container: str) -> str:
        return f"{self._uid}-{container}"

    def forget(self) -> None:
        """Something was missing: look again."""
        self._sources = self._volumes = None

    async def ready(self) -> None:
        """Sources and volumes, once."""
        if self._sources is None:
            self._sources = await self._around.fetch_sources(self._pod)
        if self._volumes is None:
            volumes = Volumes(
                self._pod,
                self.directory / "volumes",
                self._around.directory / "claims",
                self._sources,
            )
            self._volumes = volumes.make(node=self._around.node, pod_ip=self._address)

    async def launch(self, container: Object, attempt: int) -> Launch:
        """The command line of a container's next run; CannotStart says what it waits for."""
        try:
            self._take_gpus()
            await self.ready()
            return self._launch(container, attempt)
        except (MissingReference, NotEnough, VolumeError) as error:
            raise CannotStart("CreateContainerConfigError", str(error)) from error
        except NotMapped as error:
            raise CannotStart("ImageNotMapped", str(error)) from error
        except NetworkError as error:
            message = f"the pod's network cannot be made: {error}"
            raise CannotStart("CreateContainerConfigError", message) from error
        except OSError as error:
            raise CannotStart("CreateContainerError", str(error)) from error

    def _launch(self, container: Object, attempt: int) -> Launch:
        name = container["name"]
        environment, variables = self._environment(container)
        command = command_line(container, variables)
        if not command:
            raise VolumeError(
                f"container {name!r} has no command: an image that is mapped to this machine has "
                "no entry point of its own; write command"
            )
        if self._around.isolate == "none":
            command = [self._with_addresses(word) for word in command]
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
            isolate=self._around.isolate,
        )
        variables |= {"HEKLA_UP": str(up)} | sandbox.variables(self._around.isolate)
        if group is not None:
            variables["HEKLA_CGROUPS"] = " ".join(map(str, group.paths))
        return Launch(line, variables, group)

    async def inside(
        self, container: Object, pid: int, command: list[str]
    ) -> tuple[list[str], dict[str, str]]:
        """The command line and variables that run something in a running container."""
        await self.ready()
        environment, variables = self._environment(container)
        line = sandbox.enter(
            pid,
            self._working_directory(container),
            command,
            isolate=self._around.isolate,
            root=environment.path if environment.kind == "rootfs" else "",
        )
        return line, variables

    def _take_gpus(self) -> None:
        """Noted on disk before they are used, so that the next agent gives them to nobody else."""
        if wanted := gpus_wanted(self._pod):
            given = self._around.gpus.give(self._uid, wanted)
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            (self.directory / GPU_NOTE).write_text(" ".join(map(str, given)))
        gpus = self._around.gpus
        if self._uid not in gpus.shared:
            gpus.share(self._uid, parts_of(self._pod, gpus))
        note = self.directory / PARTS_NOTE
        if (parts := gpus.shared.get(self._uid)) and not note.exists():
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            note.write_bytes(msgspec.json.encode(parts))

    def _make_group(self, container: Object) -> Group | None:
        """With CPUs of its own for a container that wants some."""
        cpus, limits = self._around.cpus, _limits(container)
        own = cpus.give(self._pod, container)
        if own:
            cpus.note(self._uid, self.directory)
        if cpus.policy == STATIC:
            limits = replace(limits, cpus=format_cpuset(own or cpus.shared()))
        group = self._around.cgroups.make(self.group_name(container["name"]), limits)
        if own:
            if group is None:
                raise OSError("it is to have CPUs of its own, and no cgroup can be made for it")
            self._around.cpus_changed()
        return group

    def _network(self) -> Path | None:
        """The pod's own network; made with its first container, gone with the pod."""
        network = self._around.network
        if network is None or self._pod["spec"].get("hostNetwork"):
            return None
        return network.add(self._uid, self._address)

    @property
    def _hostname(self) -> str:
        return str(self._pod["spec"].get("hostname") or self._pod["metadata"]["name"])

    def _environment(self, container: Object) -> tuple[Environment, dict[str, str]]:
        assert self._sources is not None
        assert self._volumes is not None
        environment = self._around.images.resolve(container["image"])
        base = environment.variables(dict(os.environ))
        base["HOSTNAME"] = self._hostname
        base["HEKLA_POD_UID"] = self._uid
        if gpus := self._around.gpus.taken.get(self._uid):
            base["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
        base |= self._around.gpus.variables(self._pod, container["name"])
        made = container_environment(
            self._pod,
            container,
            self._sources,
            base=base,
            node=self._around.node,
            pod_ip=self._address,
        )
        if self._around.isolate == "none":
            made = {key: self._with_addresses(value) for key, value in made.items()}
            # Without a mount namespace a volume is not at its mount path: say where it is.
            for mount in container.get("volumeMounts") or ():
                key = "HEKLA_VOLUME_" + mount["name"].upper().replace("-", "_")
                made[key] = str(self._volumes[mount["name"]])
        return environment, made

    def _with_addresses(self, text: str) -> str:
        """Names of the job's pods as addresses, for pods that see this machine's hosts file."""
        subdomain = self._pod["spec"].get("subdomain")
        namespace = self._pod["metadata"]["namespace"]
        if not subdomain or f".{subdomain}" not in text:
            return text
        tail = rf"(?:\.{re.escape(namespace)}(?:\.svc(?:\.cluster\.local)?)?)?"
        return re.sub(
            rf"(?<![\w.-])([a-z0-9]([-a-z0-9]*[a-z0-9])?)\.{re.escape(subdomain)}{tail}(?![\w-])",
            lambda found: self._around.address_of(namespace, found[1]),
            text,
        )

    def _working_directory(self, container: Object) -> str:
        if container.get("workingDir"):
            return str(container["workingDir"])
        home = self.directory / "work"
        home.mkdir(exist_ok=True)
        return str(home)

    def _scratch(self, container: str) -> Path:
        """Where the container makes mount paths that the machine does not have."""
        scratch = self.directory / "containers" / container / "scratch"
        scratch.mkdir(exist_ok=True)
        return scratch

    def _mounts(self, container: Object) -> list[sandbox.Mount]:
        assert self._volumes is not None
        hosts = self._around.directory / "hosts" / self._pod["metadata"]["namespace"]
        mounts = [sandbox.Mount(hosts, "/etc/hosts")] if hosts.exists() else []
        if self._around.network is not None and not self._around.network.reaches_out:
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
        """For pods that reach no server of names: being refused at once beats waiting for none."""
        path = self._around.directory / "resolv.conf"
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
