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
from typing import Any

from hekla import __version__
from hekla.api import wellknown
from hekla.api.cards import decode, gpu_indices, register

Object = dict[str, Any]
MAX_PODS = 500
SLOTS = 65_000
"""Addresses there are: a network of 16 bits, less its ends."""
GPUS = Path("/proc/driver/nvidia/gpus")
SHARES = 10
"""Containers that may share a GPU, as Volcano's device plugin has it by default."""
SIMULATED_MEMORY = 16384
GPU_NOTE = "gpus"
"""In a pod's directory: the indices of its GPUs."""


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


def node_object(name: str, now: str, cards: Sequence[Card] = ()) -> Object:
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
        annotations[wellknown.NODE_VGPU_REGISTER] = register(described, SHARES)
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


@dataclass
class Gpus:
    """Which pod has which GPUs, by index: whole ones are chosen here, shared ones written on it."""

    cards: Sequence[Card]
    taken: dict[str, list[int]] = field(default_factory=dict)
    shared: dict[str, list[int]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self.cards)

    def give(self, uid: str, wanted: int) -> list[int]:
        """The pod's own, for as long as it lives; NotEnough rather than some of another's."""
        if uid not in self.taken:
            held = (*self.taken.values(), *self.shared.values())
            used = {index for given in held for index in given}
            free = [index for index in range(self.count) if index not in used]
            if len(free) < wanted:
                raise NotEnough(f"needs {wanted} GPUs, and {len(free)} are free here just now")
            self.taken[uid] = free[:wanted]
        return self.taken[uid]

    def share(self, uid: str, given: Iterable[int]) -> None:
        """The pod has parts of these, if nobody has one of them whole."""
        wanted = sorted(set(given))
        whole = {index for indices in self.taken.values() for index in indices}
        if clash := [index for index in wanted if index in whole]:
            raise NotEnough(
                f"shares GPU {clash[0]}, which another pod has whole; it waits until that one ends"
            )
        if wanted:
            self.shared[uid] = wanted

    def index_of(self, card: str) -> int:
        """Of a card by its id or number; of a part of a card, that card's."""
        uuid = card.partition("[")[0]
        for index, known in enumerate(self.cards):
            if uuid in (known.id, str(index)):
                return index
        raise NotEnough(f"was given card {card!r}, and this machine has no such card")

    def variables(self, pod: Object, container: str) -> dict[str, str]:
        """What tells a container's processes which parts of which GPUs are theirs."""
        if pod["metadata"]["uid"] not in self.shared:
            return {}
        return shared_variables(pod, container, self)

    def take_back(self, uid: str) -> None:
        self.taken.pop(uid, None)
        self.shared.pop(uid, None)

    def recall(self, pods: Path) -> None:
        """What an earlier agent gave to pods that may still run, as noted in their directories."""
        for path in pods.glob(f"*/{GPU_NOTE}"):
            with contextlib.suppress(OSError, ValueError):
                self.taken[path.parent.name] = [int(word) for word in path.read_text().split()]


def gpus_wanted(pod: Object) -> int:
    total = 0
    for container in pod["spec"]["containers"]:
        total += int(_limits(container).get(wellknown.NVIDIA_GPU, 0))
    return total


def shared_gpus(pod: Object, gpus: Gpus) -> list[int]:
    """The GPUs that the scheduler gave a pod parts of, by index."""
    notes = pod["metadata"].get("annotations") or {}
    named = [each.card for each in decode(notes.get(wellknown.VGPU_IDS_NEW, ""))]
    return [gpus.index_of(card) for card in (*named, *gpu_indices(notes))]


def shared_variables(pod: Object, container: str, gpus: Gpus) -> dict[str, str]:
    """The variables of the published contract: visible cards, and the limits on each of them."""
    notes = pod["metadata"].get("annotations") or {}
    names = [each["name"] for each in pod["spec"]["containers"]]
    number = names.index(container) if container in names else -1
    own = [e for e in decode(notes.get(wellknown.VGPU_IDS_NEW, "")) if e.container == number]
    if own:
        indices = [gpus.index_of(each.card) for each in own]
        limits = {f"CUDA_DEVICE_MEMORY_LIMIT_{i}": f"{e.memory}m" for i, e in enumerate(own)}
        if cores := max(each.cores for each in own):
            limits["CUDA_DEVICE_SM_LIMIT"] = str(cores)
        visible = ",".join(each.card for each in own)
    else:
        amounts = [
            int(_limits(each).get(wellknown.GPU_MEMORY, 0))
            for each in pod["spec"]["containers"]
            if each["name"] == container
        ]
        indices = [gpus.index_of(card) for card in gpu_indices(notes)]
        if not indices:
            return {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
        limits = {}
        if any(amounts):
            limits["VOLCANO_GPU_ALLOCATED"] = str(amounts[0])
            limits["VOLCANO_GPU_TOTAL"] = str(gpus.cards[indices[0]].memory)
            limits["CUDA_DEVICE_MEMORY_LIMIT_0"] = f"{amounts[0]}m"
        visible = ",".join(map(str, indices))
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, indices)),
        "NVIDIA_VISIBLE_DEVICES": visible,
        **limits,
    }


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
