"""Prepare what a container needs before its process starts: devices, volumes, network, variables.

A `ContainerSetup` belongs to one pod. `prepare` reads sources and creates volumes, and can be
called again when something was missing; `launch` and `exec_command` return command lines.

Note: an agent that adopts a running pod has not prepared anything, so `exec_command` calls
`prepare`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from hekla.api import wellknown
from hekla.api.numa import STATIC
from hekla.api.pod_resources import pod_limits
from hekla.images.errors import ImageError
from hekla.images.lookup import read_file
from hekla.images.store import Image
from hekla.images.tree import remove_tree
from hekla.nodeagent import sandbox
from hekla.nodeagent.cdi import CdiSpecs
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
    expand,
    inherited,
)
from hekla.nodeagent.errors import AllocationError
from hekla.nodeagent.gpu_edits import GpuEdits, gpu_edits
from hekla.nodeagent.gpus import device_nodes, requested_gpus, visible_devices
from hekla.nodeagent.image_config import (
    ImageConfigError,
    ImageUser,
    check_command,
    image_command,
    image_credentials,
    image_directory,
    image_variables,
)
from hekla.nodeagent.image_pulls import Changed, ImageWaits, NodeImages, PodImages
from hekla.nodeagent.images import (
    Environment,
    ImageTable,
    NotMapped,
    closed_programs,
    default_command,
)
from hekla.nodeagent.kept_logs import KeptLogs
from hekla.nodeagent.network import BridgeNetwork, NetworkError
from hekla.nodeagent.programs import FetchHandler, PodPrograms, UnknownRuntime
from hekla.nodeagent.sandbox import Command, ImageRoot, Mount, Rights, Surroundings
from hekla.nodeagent.security_context import (
    RANGE_SIZE,
    Abilities,
    PodUser,
    RunsAsRoot,
    check_non_root,
    credentials,
    fs_group,
    pod_sysctls,
)
from hekla.nodeagent.sif_command import sif_command, sif_variables
from hekla.nodeagent.ssh_host_keys import HOST_KEY, host_key
from hekla.nodeagent.uid_ranges import UidRanges, UserNamespaces
from hekla.nodeagent.volumes import READ_ONLY_KINDS, VolumeError, VolumeOwner, Volumes
from hekla.nodeagent.warm_starts import WarmStarts
from hekla.units.clock import Clock
from hekla.units.cpusets import format_cpuset
from hekla.units.objects import Object
from hekla.units.quantity import parse_quantity

MAX_PROCESSES = 32_768
ROOT_KIND = "root"
"""The kind of the directory with what a run of an image has changed."""
LONG_S = 3600.0
"""For what reports by itself that it has changed."""
NO_SANDBOX = "FailedCreatePodSandBox"
"""The kubelet's reason if it has no runtime of the handler of a RuntimeClass."""
MARK = "HEKLA_UP"
"""The variable by which an agent finds a process whose start was not recorded."""


@dataclass
class NodeContext:
    """What all pod workers of a node share."""

    directory: Path
    clock: Clock
    images: ImageTable
    node_images: NodeImages | None
    """None if only images of the table run."""
    cgroups: Cgroups
    warm: WarmStarts
    isolate: sandbox.Isolation
    hidden: Path
    """The data directory of the cluster, which containers do not see."""
    kept_logs: KeptLogs
    pod_user: PodUser
    uid_ranges: UidRanges
    user_namespaces: UserNamespaces
    network: BridgeNetwork | None
    """None if pods use the host network."""
    devices: DeviceManager
    cdi: CdiSpecs
    cpus: CpuManager
    on_cpus_changed: Callable[[], None]
    """Called when exclusive CPUs were assigned, so that other containers leave them."""
    address_of: Callable[[str, str], str]
    """(namespace, host name) -> address"""
    node: Object
    report: Callable[[Object, Object], Awaitable[None]]
    """(pod, status): write the status."""
    fetch_sources: Callable[[Object], Awaitable[Sources]]
    fetch_handler: FetchHandler
    event: Callable[[Object, Literal["Normal", "Warning"], str, str], None]
    """(pod, type, reason, message)"""


class CannotStart(Exception):
    """A container has to wait; `reason` is the reason in its status."""

    def __init__(
        self, reason: str, message: str, *, retry_s: float | None = None, is_reported: bool = False
    ) -> None:
        """`retry_s` is None for the usual time. `is_reported` if there are events already."""
        super().__init__(message)
        self.reason = reason
        self.retry_s = retry_s
        self.is_reported = is_reported


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """The command line, variables and cgroup of a container process."""

    launch: sandbox.Launch
    variables: dict[str, str]
    group: Group | None
    owner: tuple[int, int] | None
    """User and group of its output and input; None for the agent's."""
    descriptors: dict[int, int]
    image: Image | None = None


class ContainerSetup:
    """Prepares the containers of one pod."""

    def __init__(self, pod: Object, context: NodeContext, address: str) -> None:
        self._pod = pod
        self._context = context
        self._address = address
        self._uid = str(pod["metadata"]["uid"])
        self.directory = context.directory / "pods" / self._uid
        self._claims = context.directory / "claims"
        self._sources: Sources | None = None
        self._volumes: dict[str, Path] | None = None
        self._launched: dict[str, Environment | Image] = {}
        """The environment or image with which each container was started."""
        self._edits: dict[str, GpuEdits | None] = {}
        node = context.node_images
        self._images = None if node is None else PodImages(pod, node, context.event)
        self._programs = PodPrograms(pod, context.images, self._images, context.fetch_handler)

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
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            volumes = Volumes(
                self._pod,
                self.directory / "volumes",
                self._claims,
                self._sources,
                owner=self._volume_owner(),
                off_limits=self._context.hidden,
            )
            self._volumes = volumes.make(node=self._context.node, pod_ip=self._address)

    def close(self) -> None:
        """Wait for no image any more."""
        if self._images is not None:
            self._images.close()

    @property
    def has_pinned(self) -> bool:
        """Whether images were pinned for the pod since the agent started."""
        return self._images is not None and self._images.has_pinned

    def unpin(self) -> None:
        """Let go of the images of the pod, which is removed."""
        if self._context.node_images is not None:
            self._context.node_images.unpin(self._uid)

    async def launch(self, container: Object, attempt: int, changed: Changed) -> LaunchSpec:
        """Return how to start the next run of a container; CannotStart if it has to wait.

        `changed` is called while the container waits for its image.
        """
        try:
            self._allocate_gpus()
            await self.prepare()
            programs = await self._programs.find(container, changed)
            if isinstance(programs, Image):
                await asyncio.to_thread(self._make_writable, container["name"], attempt)
            return self._launch_spec(container, attempt, programs)
        except ImageWaits as error:
            raise CannotStart(
                error.reason, str(error), retry_s=error.retry_s or LONG_S, is_reported=True
            ) from error
        except (
            MissingReference,
            AllocationError,
            VolumeError,
            RunsAsRoot,
            ImageConfigError,
        ) as error:
            raise CannotStart("CreateContainerConfigError", str(error)) from error
        except ImageError as error:
            raise CannotStart("CreateContainerError", str(error)) from error
        except NotMapped as error:
            raise CannotStart("ImageNotMapped", str(error)) from error
        except UnknownRuntime as error:
            raise CannotStart(NO_SANDBOX, str(error)) from error
        except NetworkError as error:
            message = f"the pod network cannot be created: {error}"
            raise CannotStart("CreateContainerConfigError", message) from error
        except OSError as error:
            raise CannotStart("CreateContainerError", str(error)) from error

    def _launch_spec(
        self, container: Object, attempt: int, programs: Environment | Image
    ) -> LaunchSpec:
        name = container["name"]
        image = programs if isinstance(programs, Image) else None
        self._edits.pop(name, None)
        rights, user = self._rights(container, image)
        variables = self._variables(container, programs, user)
        command = self._command(container, variables, image, user)
        check_non_root(self._pod, container, rights.credentials)
        ready = self.path(name, attempt, "ready")
        ready.parent.mkdir(parents=True, exist_ok=True)
        ready.unlink(missing_ok=True)
        group = self._make_group(container)
        launch = sandbox.launch(
            Command(command, variables, self._working_directory(container, image), _paths(group)),
            self._surroundings(container, programs, variables, rights, attempt),
            rights,
            scratch=self._scratch(name),
            ready=ready,
            exit_file=self.path(name, attempt, "exit"),
        )
        self._launched[name] = programs
        helper = sandbox.helper_variables() | {MARK: str(self.path(name, attempt, "up"))}
        owner = (rights.host_uid, rights.host_gid) if rights.is_foreign else None
        descriptors = {}
        if rights.base is not None:
            descriptors[sandbox.USER_NAMESPACE_FD] = rights.user_namespace
        return LaunchSpec(launch, helper, group, owner, descriptors, image)

    def _command(
        self,
        container: Object,
        variables: dict[str, str],
        image: Image | None,
        user: ImageUser | None,
    ) -> list[str]:
        if image is not None:
            if image.sif is not None and not image.sif.has_runscript:
                check_command(container)
            words = image_command(container, image.config, variables)
            return self._in_image(container, words, image, user, variables)
        command = command_line(container, variables) or default_command(container["image"])
        if not command:
            raise VolumeError(
                f"container {container['name']!r} has no command: an image that is mapped to this "
                "machine has no entry point; set command"
            )
        if self._context.isolate == "none":
            command = [self._resolve_names(word) for word in command]
        return command

    def _in_image(
        self,
        container: Object,
        words: list[str],
        image: Image,
        user: ImageUser | None,
        variables: dict[str, str],
    ) -> list[str]:
        """Return the words that run a command as the kind of the image wants it."""
        if image.sif is None:
            return words
        base = self._image_variables(container, image, user)
        return sif_command(words, image.sif, variables, base)

    async def exec_command(
        self, container: Object, pid: int, command: list[str], image_id: str
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command line and variables that run a command in a running container.

        It runs with the rights and in the cgroup of the container, and with the user and the
        variables of its image. `image_id` is empty if it runs none.
        """
        await self.prepare()
        programs = self._running_programs(container, image_id)
        image = programs if isinstance(programs, Image) else None
        rights, user = self._rights(container, image)
        variables = self._variables(container, programs, user)
        if image is not None:
            command = self._in_image(container, command, image, user, variables)
        group = self._context.cgroups.find(self.group_name(container["name"]))
        line = sandbox.enter(
            pid,
            Command(command, variables, self._working_directory(container, image), _paths(group)),
            rights,
            directory=self.directory / "containers" / container["name"],
            in_image=image is not None,
        )
        return line, sandbox.helper_variables()

    def _rights(self, container: Object, image: Image | None) -> tuple[Rights, ImageUser | None]:
        """Return who a container is on the host and, if it runs an image, in that."""
        context, user = self._context, None
        abilities = node_abilities(context)
        given = credentials(self._pod, container, abilities)
        if image is not None:
            given, user = image_credentials(
                self._pod, container, given, image.config, self._reader(image), abilities
            )
        base = self._base()
        if base is None:
            return Rights(given, context.isolate), user
        return Rights(given, context.isolate, base, context.user_namespaces.open(base)), user

    def _reader(self, image: Image) -> Callable[[str], str]:
        """Return what reads a file of an image."""
        assert self._context.node_images is not None
        layers = self._context.node_images.store.lower_directories(image)
        return lambda path: (read_file(layers, path) or b"").decode(errors="replace")

    def _base(self) -> int | None:
        """Return the first user id of the pod's namespace; None if pods run as the owner."""
        if self._context.pod_user == "owner":
            return None
        return self._context.uid_ranges.base(self._pod["metadata"]["namespace"])

    def _volume_owner(self) -> VolumeOwner | None:
        base, group = self._base(), fs_group(self._pod)
        if base is not None:
            shared = None if group is None else base + group
            return VolumeOwner(base, base, shared, base, RANGE_SIZE)
        if group is not None and os.geteuid() == 0:
            return VolumeOwner(os.geteuid(), os.getegid(), group)
        return None

    def _allocate_gpus(self) -> None:
        """Allocate GPUs and write the checkpoints before they are used."""
        if wanted := requested_gpus(self._pod):
            given = self._context.devices.allocate(self._uid, wanted)
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            (self.directory / GPU_CHECKPOINT).write_text(" ".join(map(str, given)))
        gpus = self._context.devices
        known = gpus.shared.get(self._uid)
        gpus.share(self._uid, requested_shares(self._pod, gpus) if known is None else known)
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

    def _running_programs(self, container: Object, image_id: str) -> Environment | Image:
        """Return what a running container runs, which the table may no longer have."""
        if (known := self._launched.get(container["name"])) is not None:
            return known
        if image_id and self._context.node_images is not None:
            image = self._context.node_images.store.find(image_id.rpartition("@")[2])
            if image is None:
                raise OSError(f"the image {image_id} is no longer in the store")
            return image
        try:
            return self._context.images.resolve(container["image"])
        except NotMapped:
            return Environment()

    def _variables(
        self, container: Object, programs: Environment | Image, user: ImageUser | None
    ) -> dict[str, str]:
        assert self._sources is not None
        assert self._volumes is not None
        if isinstance(programs, Image):
            base = self._image_variables(container, programs, user)
        else:
            is_owner = self._context.pod_user == "owner"
            base = programs.variables(inherited(os.environ, is_owner=is_owner))
            if not is_owner:
                base["HOME"] = str(self.directory / "work")
        base["HOSTNAME"] = self._hostname
        base["HEKLA_POD_UID"] = self._uid
        devices = self._context.devices
        allocated = devices.allocated.get(self._uid) or ()
        visible = visible_devices(
            [(index, devices.gpus[index]) for index in allocated if index < devices.count]
        )
        base |= {
            "CUDA_VISIBLE_DEVICES": visible,
            "NVIDIA_VISIBLE_DEVICES": visible or "void",
        }
        base |= devices.variables(self._pod, container["name"])
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
        return variables

    def _image_variables(
        self, container: Object, image: Image, user: ImageUser | None
    ) -> dict[str, str]:
        """Return the variables that a container has by its image."""
        assert user is not None
        base = image_variables(image.config, user)
        if image.sif is not None:
            base |= sif_variables(container["image"])
        edits = self._gpu_edits(container)
        return base if edits is None else edits.added_to(base)

    def _gpu_edits(self, container: Object) -> GpuEdits | None:
        """Return what the container of an image gets for its GPUs, as when it was started."""
        name = container["name"]
        if name not in self._edits:
            devices = self._context.devices
            visible = devices.visible(self._pod, name)
            security = container.get("securityContext") or {}
            self._edits[name] = gpu_edits(
                self._context.cdi,
                [(index, devices.gpus[index]) for index in visible],
                has_all_devices=bool(security.get("privileged")),
            )
        return self._edits[name]

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

    def _working_directory(self, container: Object, image: Image | None) -> str:
        if image is not None:
            return image_directory(container, image.config)
        notes = self._pod["metadata"].get("annotations") or {}
        given = container.get("workingDir") or notes.get(wellknown.RUN_DIRECTORY)
        return str(given or self._work())

    def _work(self) -> Path:
        """Return the pod's own directory, in which its containers start."""
        return self._own_directory("work", 0o777)

    def _own_directory(self, name: str, mode: int) -> Path:
        """Return a directory that all containers of the pod may write, and nobody else reaches."""
        path = self.directory / name
        if not path.exists():
            path.mkdir()
            if (base := self._base()) is not None:
                os.chown(path, base, base)
            path.chmod(mode)
        return path

    def _scratch(self, container: str) -> Path:
        """Return the directory in which the container's root file system is built."""
        scratch = self.directory / "containers" / container / "scratch"
        scratch.mkdir(exist_ok=True)
        return scratch

    def _writable(self, container: str, attempt: int) -> Path:
        """Return the directory of what a run of an image changes."""
        return self.path(container, attempt, ROOT_KIND)

    def _make_writable(self, container: str, attempt: int) -> None:
        """Create it, and remove those of earlier runs: a container starts from its image."""
        path = self._writable(container, attempt)
        remove_roots(path.parent)
        for name in ("upper", "work"):
            (path / name).mkdir(parents=True)

    def _surroundings(
        self,
        container: Object,
        programs: Environment | Image,
        variables: dict[str, str],
        rights: Rights,
        attempt: int,
    ) -> Surroundings:
        network = self._network()
        sysctls = pod_sysctls(self._pod)
        if network is not None:
            # As containerd: the network is the pod's own, so its root needs no capability for it.
            sysctls = {"net.ipv4.ip_unprivileged_port_start": "0", **sysctls}
        if isinstance(programs, Image):
            return self._surroundings_of_image(
                container, programs, variables, network, sysctls, attempt
            )
        environment, mounts = programs, self._system_mounts()
        if rights.is_foreign:
            mounts += [Mount(path, str(path), True) for path in closed_programs(environment)]
        is_owner = self._context.pod_user == "owner"
        return Surroundings(
            hostname=self._hostname,
            mounts=[*mounts, *self._volume_mounts(container, variables)],
            hidden=[self._context.hidden],
            private=() if is_owner else ("run", "tmp"),
            root=environment.path if environment.kind == "rootfs" else "",
            network=network,
            sysctls=sysctls,
            devices=self._device_nodes(container["name"]),
        )

    def _surroundings_of_image(
        self,
        container: Object,
        image: Image,
        variables: dict[str, str],
        network: Path | None,
        sysctls: dict[str, str],
        attempt: int,
    ) -> Surroundings:
        """Return what a container of an image sees: nothing of the host's files but its names."""
        assert self._context.node_images is not None
        edits = self._gpu_edits(container)
        root = ImageRoot(
            self._context.node_images.store.lower_directories(image),
            self._writable(container["name"], attempt),
            self._working_directory(container, image),
            edits.links if edits else (),
        )
        mounts = self._name_mounts() + (edits.mounts if edits else [])
        resolver = Path("/etc/resolv.conf").resolve()
        if resolver.exists() and all(mount.target != "/etc/resolv.conf" for mount in mounts):
            mounts.append(Mount(resolver, "/etc/resolv.conf", True))
        return Surroundings(
            hostname=self._hostname,
            mounts=[
                *mounts,
                Mount(self._hostname_file(), "/etc/hostname"),
                *self._volume_mounts(container, variables),
            ],
            image=root,
            network=network,
            sysctls=sysctls,
            devices=[] if edits else self._device_nodes(container["name"]),
        )

    def _device_nodes(self, container: str) -> list[str]:
        devices = self._context.devices
        return device_nodes([devices.gpus[i] for i in devices.visible(self._pod, container)])

    def _system_mounts(self) -> list[Mount]:
        """Return the mounts of every container, beside its volumes."""
        work = self._work()
        mounts = [Mount(work, str(work)), *self._name_mounts()]
        base = self._base()
        if base is None:
            return mounts
        resolver = Path("/etc/resolv.conf").resolve()
        if resolver.is_relative_to("/run") and resolver.exists():
            mounts.append(Mount(resolver, str(resolver), True))
        for name in ("tmp", "var/tmp"):
            own = self._own_directory(name.replace("/", "-"), 0o1777)
            mounts.append(Mount(own, f"/{name}"))
        namespace = self._pod["metadata"]["namespace"]
        if (key := host_key(self._context.directory, namespace, base)) is not None:
            mounts.append(Mount(key, str(HOST_KEY), True))
        if self._context.devices.mps_directory:
            pipes = Path(self._context.devices.mps_directory)
            mounts.append(Mount(pipes, str(pipes)))
        return mounts

    def _name_mounts(self) -> list[Mount]:
        """Return the files by which a container finds other pods and the world."""
        mounts = []
        hosts = self._context.directory / "hosts" / self._pod["metadata"]["namespace"]
        if hosts.exists():
            mounts.append(Mount(hosts, "/etc/hosts"))
        if self._context.network is not None and not self._context.network.reaches_out:
            mounts.append(Mount(self._no_name_server(), "/etc/resolv.conf"))
        return mounts

    def _volume_mounts(self, container: Object, variables: dict[str, str]) -> list[Mount]:
        assert self._volumes is not None
        kinds = {each["name"]: set(each) for each in self._pod["spec"].get("volumes") or ()}
        mounts = []
        for mount in container.get("volumeMounts") or ():
            name = mount["name"]
            part = mount.get("subPath") or expand(mount.get("subPathExpr") or "", variables)
            read_only = bool(mount.get("readOnly")) or bool(kinds[name] & set(READ_ONLY_KINDS))
            _check_mount(mount["mountPath"], part)
            mounts.append(Mount(self._volumes[name], mount["mountPath"], read_only, part))
        return mounts

    def _hostname_file(self) -> Path:
        path = self.directory / "hostname"
        if not path.exists():
            path.write_text(f"{self._hostname}\n")
            path.chmod(0o644)
        return path

    def _no_name_server(self) -> Path:
        """Return a resolv.conf for pods without a name server, with which lookups fail at once."""
        path = self._context.directory / "resolv.conf"
        if not path.exists():
            path.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
            path.chmod(0o644)
        return path


def remove_roots(directory: Path) -> None:
    """Remove what the runs of a container have changed in their images."""
    for path in directory.glob(f"*.{ROOT_KIND}"):
        with contextlib.suppress(OSError):
            remove_tree(path)


def remove_all_roots(pod_directory: Path) -> None:
    """Remove what all containers of a pod have changed in their images."""
    for path in pod_directory.glob("containers/*"):
        remove_roots(path)


def node_abilities(context: NodeContext) -> Abilities:
    """Return what this node can give a container."""
    return Abilities(
        pod_user=context.pod_user,
        is_root=os.geteuid() == 0 and context.isolate != "user",
        namespaces=context.isolate != "none",
        pod_network=context.network is not None,
        uid=os.geteuid(),
        gid=os.getegid(),
    )


def _paths(group: Group | None) -> list[Path]:
    return group.paths if group is not None else []


def _check_mount(path: str, part: str) -> None:
    """Refuse what the API refuses, in case it has not."""
    if not path.startswith("/") or ".." in path.split("/") or not path.isprintable():
        raise VolumeError(f"mountPath {path!r} is not an absolute path of printable characters")
    if part.startswith("/") or ".." in part.split("/") or not part.isprintable():
        raise VolumeError(f"subPath {part!r} is not a relative path of printable characters")


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
