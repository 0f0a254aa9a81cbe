"""This machine as a node: what it has, who it is, and which devices and addresses are taken."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hekla import __version__
from hekla.api import wellknown
from hekla.api.devices import (
    MAX_AMOUNT,
    MAX_NUMBER,
    DeviceRequest,
    decode,
    gpu_indices,
    register,
    vgpu_request,
)
from hekla.units.objects import Object
from hekla.units.quantity import QuantityError, parse_quantity

MAX_PODS = 500
SLOTS = 65_000
"""Addresses there are: a network of 16 bits, less its ends."""
GPUS = Path("/proc/driver/nvidia/gpus")
SHARES = 10
"""Containers that may share a GPU, as Volcano's device plugin has it by default."""
SIMULATED_MEMORY = 16384
HAMI_CORE, MPS = "hami-core", "mps"
MPS_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"
"""Of the agent's own environment: where NVIDIA's MPS daemon listens, if it runs."""
GPU_NOTE = "gpus"
"""In a pod's directory: the indices of its GPUs."""
PARTS_NOTE = "gpu-parts"
"""In a pod's directory: its parts of GPUs, as they were when it was first started."""


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU of this machine; memory in MiB."""

    id: str
    memory: int
    type: str


def simulated_cards(count: int) -> list[Card]:
    return [Card(f"GPU-simulated-{i}", SIMULATED_MEMORY, "Simulated-GPU") for i in range(count)]


def found_cards() -> list[Card]:
    """GPUs by the driver's own list, described by its own tool; without it, all are alike."""
    try:
        count = len(list(GPUS.iterdir()))
    except OSError:
        return []
    described = _described() if count else []
    if len(described) == count:
        return described
    return [Card(f"GPU-{i}", SIMULATED_MEMORY, "NVIDIA") for i in range(count)]


def _described() -> list[Card]:
    query = ["nvidia-smi", "--query-gpu=uuid,memory.total,name", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[word.strip() for word in line.split(",", 2)] for line in said.splitlines()]
    return [
        Card(row[0], int(row[1]), row[2].replace(" ", "-").replace(",", ""))
        for row in rows
        if len(row) == 3 and row[1].isdecimal()
    ]


def node_object(name: str, now: str, cards: Sequence[Card] = (), mode: str = HAMI_CORE) -> Object:
    """The Node that stands for this machine. Its GPUs are offered whole and in parts."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    capacity = {
        "cpu": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory // 1024}Ki",
        "pods": str(MAX_PODS),
    }
    annotations = {}
    if cards:
        memory = sum(card.memory for card in cards)
        capacity |= {
            wellknown.NVIDIA_GPU: str(len(cards)),
            wellknown.GPU_NUMBER: str(len(cards)),
            wellknown.GPU_MEMORY: str(memory),
            wellknown.VGPU_NUMBER: str(SHARES * len(cards)),
            wellknown.VGPU_MEMORY: str(memory),
            wellknown.VGPU_CORES: str(100 * len(cards)),
        }
        described = [(card.id, card.memory, card.type) for card in cards]
        annotations[wellknown.NODE_VGPU_REGISTER] = register(described, SHARES, mode)
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(
        platform.machine(), platform.machine()
    )
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "AgentReady",
        "message": "the node agent is running",
        "lastTransitionTime": now,
        "lastHeartbeatTime": now,
    }
    return {
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": architecture,
            },
            "annotations": annotations,
        },
        "status": {
            "capacity": capacity,
            "allocatable": dict(capacity),
            "conditions": [condition],
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {
                "architecture": architecture,
                "operatingSystem": "linux",
                "kernelVersion": platform.release(),
                "osImage": _os_name(),
                "kubeletVersion": f"hekla-{__version__}",
                "containerRuntimeVersion": "processes://1",
                "kubeProxyVersion": "",
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
            },
        },
    }


def _os_name() -> str:
    try:
        return str(platform.freedesktop_os_release().get("PRETTY_NAME", "Linux"))
    except OSError:
        return "Linux"


@dataclass
class Addresses:
    """An address for each pod.

    Of the pods' own network, or of 127/8: all of that is this machine's without any set-up.
    A pod's name decides, so that its address can be told before the pod is here, and a pod that
    takes another's place has the other's address, unless both are here at once.
    """

    first: tuple[int, int, int, int]
    taken: dict[str, str] = field(default_factory=dict)

    def expected(self, name: str) -> str:
        """What a pod of this name (with its namespace) gets if nobody else has it."""
        return self._numbered(_slot(name))

    def give(self, uid: str, name: str) -> str:
        if uid in self.taken:
            return self.taken[uid]
        used = set(self.taken.values())
        slot = _slot(name)
        while (address := self._numbered(slot)) in used:
            slot = (slot + 1) % SLOTS
        self.taken[uid] = address
        return address

    def take_back(self, uid: str) -> None:
        self.taken.pop(uid, None)

    def _numbered(self, slot: int) -> str:
        number = int.from_bytes(bytes(self.first), "big") + slot
        return ".".join(map(str, number.to_bytes(4, "big")))


def _slot(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % SLOTS


class NotEnough(Exception):
    """Devices are short; the text says how."""


class Part(msgspec.Struct, frozen=True, array_like=True):
    """What a container has of a GPU; without a name, what all of a pod's have together."""

    container: str
    index: int
    memory: int
    """In MiB."""
    cores: int
    """In hundredths; at 100 it has the GPU alone."""


@dataclass
class Gpus:
    """Which pod has which GPUs, by index: whole ones are chosen here, shared ones written on it."""

    cards: Sequence[Card]
    taken: dict[str, list[int]] = field(default_factory=dict)
    shared: dict[str, list[Part]] = field(default_factory=dict)
    mps_directory: str = ""

    @property
    def count(self) -> int:
        return len(self.cards)

    @property
    def mode(self) -> str:
        """Who holds pods to their parts: HAMi's library, or NVIDIA's daemon."""
        return MPS if self.mps_directory else HAMI_CORE

    def give(self, uid: str, wanted: int) -> list[int]:
        """The pod's own, for as long as it lives; NotEnough rather than some of another's."""
        if uid not in self.taken:
            used = {index for given in self.taken.values() for index in given}
            used |= {part.index for parts in self.shared.values() for part in parts}
            free = [index for index in range(self.count) if index not in used]
            if len(free) < wanted:
                raise NotEnough(f"needs {wanted} GPUs, and {len(free)} are free here just now")
            self.taken[uid] = free[:wanted]
        return self.taken[uid]

    def share(self, uid: str, parts: Sequence[Part]) -> None:
        """The pod has these parts for as long as it lives, if what others have leaves them."""
        if uid in self.shared or not parts:
            return
        whole = {index for indices in self.taken.values() for index in indices}
        others = [part for each in self.shared.values() for part in each]
        for index in sorted({part.index for part in parts}):
            if index in whole:
                raise NotEnough(
                    f"shares GPU {index}, which another pod has whole; it waits until that one ends"
                )
            here = [part for part in (*others, *parts) if part.index == index]
            memory, cores = sum(part.memory for part in here), sum(part.cores for part in here)
            alone = any(part.cores >= 100 for part in here) and len(here) > 1
            if alone or cores > 100 or memory > self.cards[index].memory:
                raise NotEnough(
                    f"is to have a part of GPU {index}, of which not that much is left; "
                    "it waits until other pods end"
                )
        self.shared[uid] = list(parts)

    def index_of(self, card: str) -> int:
        """Of a card by its id or number; of a part of a card, that card's."""
        uuid = card.partition("[")[0]
        for index, known in enumerate(self.cards):
            if uuid in (known.id, str(index)):
                return index
        raise NotEnough(f"was given card {card!r}, and this machine has no such card")

    def variables(self, pod: Object, container: str) -> dict[str, str]:
        """What tells a container's processes which parts of which GPUs are theirs."""
        if not asks_for_parts(pod):
            return {}
        parts = self.shared.get(pod["metadata"]["uid"], ())
        told = _variables(parts, pod, container, self.cards)
        if self.mps_directory and told["CUDA_VISIBLE_DEVICES"]:
            own = [part for part in parts if part.container in ("", container)]
            told |= {MPS_DIRECTORY: self.mps_directory, **_mps_limits(own)}
        return told

    def take_back(self, uid: str) -> None:
        self.taken.pop(uid, None)
        self.shared.pop(uid, None)

    def recall(self, pods: Path) -> None:
        """What an earlier agent gave to pods that may still run, as noted in their directories."""
        for path in pods.glob(f"*/{GPU_NOTE}"):
            with contextlib.suppress(OSError, ValueError):
                self.taken[path.parent.name] = [int(word) for word in path.read_text().split()]
        for path in pods.glob(f"*/{PARTS_NOTE}"):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                parts = msgspec.json.decode(path.read_bytes(), type=list[Part])
                if all(0 <= part.index < self.count for part in parts):
                    self.shared[path.parent.name] = parts


def gpus_wanted(pod: Object) -> int:
    total = 0
    for container in pod["spec"]["containers"]:
        total += _amounts(container).get(wellknown.NVIDIA_GPU, 0)
    return total


def parts_of(pod: Object, gpus: Gpus) -> list[Part]:
    """What a pod has of GPUs: its annotations say which ones, its own limits how many and how much.

    Annotations of a pod that asks for nothing say nothing.
    """
    notes = pod["metadata"].get("annotations") or {}
    wanted = [
        (each["name"], ask)
        for each in pod["spec"]["containers"]
        for ask in (vgpu_request(_amounts(each)),)
        for _ in range(min(ask.number, MAX_NUMBER))
    ]
    if wanted and wellknown.VGPU_IDS_NEW in notes:
        named = [each.card for each in decode(notes[wellknown.VGPU_IDS_NEW])]
        _check_number(wellknown.VGPU_IDS_NEW, len(wanted), len(named))
        return [
            _part(name, ask, gpus, gpus.index_of(card))
            for (name, ask), card in zip(wanted, named, strict=True)
        ]
    number, memory = _most(pod, wellknown.GPU_NUMBER), _most(pod, wellknown.GPU_MEMORY)
    if (number or memory) and wellknown.GPU_INDEX in notes:
        named = gpu_indices(notes)
        _check_number(wellknown.GPU_INDEX, number or 1, len(named))
        ask = DeviceRequest(1, percent=100, cores=100) if number else DeviceRequest(1, memory)
        return [_part("", ask, gpus, gpus.index_of(card)) for card in named]
    return []


def _part(container: str, ask: DeviceRequest, gpus: Gpus, index: int) -> Part:
    memory = gpus.cards[index].memory * ask.percent // 100 if ask.percent else ask.memory
    return Part(container, index, memory, ask.cores)


def _check_number(note: str, wanted: int, named: int) -> None:
    if named != wanted:
        raise NotEnough(
            f"asks for {wanted} GPUs or parts of them, and its annotation {note} names {named}; "
            "only the scheduler may write it"
        )


def asks_for_parts(pod: Object) -> bool:
    names = (wellknown.VGPU_NUMBER, wellknown.VGPU_MEMORY)
    if any(name in _limits(each) for each in pod["spec"]["containers"] for name in names):
        return True
    return any(_most(pod, name) for name in (wellknown.GPU_NUMBER, wellknown.GPU_MEMORY))


def _variables(
    parts: Iterable[Part], pod: Object, container: str, cards: Sequence[Card]
) -> dict[str, str]:
    """The variables of the published contract: visible cards, and the limits on each of them."""
    limits: dict[str, str] = {}
    own = [part for part in parts if part.container == container]
    if own:
        limits = {f"CUDA_DEVICE_MEMORY_LIMIT_{i}": f"{e.memory}m" for i, e in enumerate(own)}
        if cores := max(each.cores for each in own):
            limits["CUDA_DEVICE_SM_LIMIT"] = str(cores)
        visible = ",".join(cards[each.index].id for each in own)
    else:
        amounts = _amounts_in(pod, container)
        memory = amounts.get(wellknown.GPU_MEMORY, 0)
        if memory or amounts.get(wellknown.GPU_NUMBER):
            own = [part for part in parts if not part.container]
        if not own:
            return {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
        if memory:
            limits["VOLCANO_GPU_ALLOCATED"] = str(memory)
            limits["VOLCANO_GPU_TOTAL"] = str(cards[own[0].index].memory)
            limits["CUDA_DEVICE_MEMORY_LIMIT_0"] = f"{memory}m"
        visible = ",".join(str(each.index) for each in own)
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(str(each.index) for each in own),
        "NVIDIA_VISIBLE_DEVICES": visible,
        **limits,
    }


def _mps_limits(own: Sequence[Part]) -> dict[str, str]:
    """What NVIDIA's daemon holds a client to, by the numbers under which it sees its cards."""
    memory = ",".join(f"{i}={part.memory}M" for i, part in enumerate(own))
    limits = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": memory}
    if cores := max(part.cores for part in own):
        limits["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(cores)
    return limits


def _most(pod: Object, name: str) -> int:
    """What a pod's containers ask for together, or one that runs before them alone."""
    spec = pod["spec"]
    together = sum(_amounts(each).get(name, 0) for each in spec["containers"])
    before = [_amounts(each).get(name, 0) for each in spec.get("initContainers") or ()]
    return max(together, *before) if before else together


def _amounts_in(pod: Object, container: str) -> dict[str, int]:
    spec = pod["spec"]
    for each in (*spec["containers"], *(spec.get("initContainers") or ())):
        if each["name"] == container:
            return _amounts(each)
    return {}


def _amounts(container: Object) -> dict[str, int]:
    """What it asks for of devices; what cannot be read it does not get."""
    out: dict[str, int] = {}
    for name, text in _limits(container).items():
        if "/" in name:
            with contextlib.suppress(QuantityError):
                out[name] = min(parse_quantity(text).value(), MAX_AMOUNT)
    return out


def _limits(container: Object) -> Object:
    return (container.get("resources") or {}).get("limits") or {}


def hosts_file(
    pods: Iterable[tuple[Object, str]], endpoints: Iterable[Object] = (), namespace: str = ""
) -> str:
    """/etc/hosts for one namespace: every pod by name, and by name and subdomain; and services.

    A service's name stands for the addresses of its ready pods: there is no proxy, so clients must
    use the port that the pods listen on.
    """
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost", f"127.0.1.1 {platform.node()}"]
    for pod, address in pods:
        metadata, spec = pod["metadata"], pod["spec"]
        host = spec.get("hostname") or metadata["name"]
        names = [host] if host == metadata["name"] else [host, metadata["name"]]
        if spec.get("subdomain"):
            domain = f"{host}.{spec['subdomain']}"
            names = [f"{domain}.{metadata['namespace']}.svc.cluster.local", domain, *names]
        lines.append(f"{address} {' '.join(names)}")
    for each in endpoints:
        name, where = each["metadata"]["name"], each["metadata"]["namespace"]
        names = [f"{name}.{where}.svc.cluster.local", f"{name}.{where}.svc", f"{name}.{where}"]
        if where == namespace:
            names.append(name)
        for subset in each.get("subsets") or ():
            lines += [f"{a['ip']} {' '.join(names)}" for a in subset.get("addresses") or ()]
    return "\n".join(lines) + "\n"
