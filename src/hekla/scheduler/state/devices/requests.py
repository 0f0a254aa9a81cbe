"""Device requests of pods, and the annotations that record their allocations.

An allocation is read from the pod's annotations only, so a new scheduler knows what the previous
one decided. They are written in the same request as the binding: a pod with a node has its devices,
and a pod without a node has none, whatever its annotations contain.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hekla.api import wellknown
from hekla.api.devices import (
    MAX_AMOUNT,
    MAX_NUMBER,
    DeviceAllocation,
    DeviceRequest,
    decode,
    encode,
    gpu_indices,
    vgpu_request,
)
from hekla.scheduler.state import wire
from hekla.scheduler.state.devices.hardware import CHIP_OF, CHIPS
from hekla.scheduler.state.devices.inventory import GPU, SAME_DEVICES, VGPU, WHOLE_GPU
from hekla.units.quantity import QuantityError, parse_quantity

WHOLE: Final = 100
"""All cores of a device: it is not shared."""
UNCLEAR: Final = DeviceAllocation("", MAX_AMOUNT, WHOLE)
"""Unknown devices: the pod counts for all devices of its node."""
_VGPU_TYPE: Final = "NVIDIA"
_VGPU_NAMES: Final = (wellknown.VGPU_NUMBER, wellknown.VGPU_MEMORY)
CHOOSING: Final = (
    wellknown.VGPU_MODE,
    wellknown.VGPU_PODGROUP_POLICY,
    wellknown.VGPU_USE_UUID,
    wellknown.VGPU_NOUSE_UUID,
    wellknown.USE_GPU_TYPE,
    wellknown.NOUSE_GPU_TYPE,
)
"""Annotations with which a pod selects devices."""


@dataclass(frozen=True, slots=True)
class Request:
    """The device request of a pod. A pod may request one kind only."""

    kind: str
    requests: tuple[DeviceRequest, ...]
    """One entry per container, with number 0 for containers without devices."""
    is_by_number: bool = False
    """Whether whole GPUs are requested by number."""
    choosing: tuple[tuple[str, str], ...] = ()
    problem: str = ""

    def note(self, name: str) -> str:
        return dict(self.choosing).get(name, "")

    @property
    def devices(self) -> int:
        return sum(request_part.number for request_part in self.requests)


# --- requests ---------------------------------------------------------------------------------


def request_of(shape: wire.PodShape, annotations: Mapping[str, str]) -> Request | None:
    """Return the device request of a pod; None if it has none."""
    amounts = [_amounts(container) for container in shape.containers or ()]
    first = [_amounts(container) for container in shape.init_containers or ()]
    if not any("/" in name for each in (*amounts, *first) for name in each):
        return None
    found: list[Request] = []
    choosing = tuple((name, annotations[name]) for name in CHOOSING if annotations.get(name))
    for name in (wellknown.GPU_MEMORY, wellknown.GPU_NUMBER):
        total = _legacy_total(name, amounts, first)
        if total:
            is_number = name == wellknown.GPU_NUMBER
            request_part = (
                DeviceRequest(total, percent=100, cores=WHOLE)
                if is_number
                else DeviceRequest(1, memory=total)
            )
            found.append(Request(GPU, (request_part,), is_number))
    if any(_wants_vgpu(each) for each in (*amounts, *first)):
        found.append(
            Request(VGPU, tuple(vgpu_request(each) for each in amounts), choosing=choosing)
        )
    for chip in CHIPS:
        if any(chip.resource in each for each in amounts):
            requests = tuple(_npu(chip.word, each) for each in amounts)
            mode = annotations.get(wellknown.VNPU_MODE, "")
            found.append(
                Request(
                    chip.word, requests, choosing=((wellknown.VNPU_MODE, mode),) if mode else ()
                )
            )
    whole = _legacy_total(WHOLE_GPU, amounts, first)
    if whole > 0 and all(request.kind in SAME_DEVICES for request in found):
        found.append(Request(WHOLE_GPU, (DeviceRequest(whole),)))
    if not found:
        return None
    wrong = _problem(found, amounts)
    return replace(found[0], problem=wrong)


def _wants_vgpu(amounts: Mapping[str, int]) -> bool:
    return any(name in amounts for name in _VGPU_NAMES) or _wants_part(amounts)


def _wants_part(amounts: Mapping[str, int]) -> bool:
    percent = amounts.get(wellknown.VGPU_MEMORY_PERCENTAGE, 0)
    is_set = percent not in (0, wellknown.VGPU_PERCENTAGE_UNSET)
    return is_set or amounts.get(wellknown.VGPU_CORES, 0) != 0


def _amounts(container: wire.Container) -> dict[str, int]:
    out: dict[str, int] = {}
    requests = (container.resources.requests if container.resources else None) or {}
    for name, text in requests.items():
        if "/" in name:
            try:
                out[name] = min(parse_quantity(text).value(), MAX_AMOUNT)
            except QuantityError:
                continue  # the task class reports it
    return out


def _legacy_total(
    name: str, amounts: Iterable[Mapping[str, int]], first: Iterable[Mapping[str, int]]
) -> int:
    together = sum(each.get(name, 0) for each in amounts)
    return max(together, max((each.get(name, 0) for each in first), default=0))


def _npu(word: str, amounts: Mapping[str, int]) -> DeviceRequest:
    chip = CHIP_OF[word]
    number, memory = amounts.get(chip.resource, 0), amounts.get(chip.memory_resource, 0)
    if number != 1 or not memory:
        return DeviceRequest(number, percent=100, cores=WHOLE)  # fractions are single devices
    name, size, cores = chip.part(memory)
    return (
        DeviceRequest(1, memory=size, cores=cores)
        if name
        else DeviceRequest(1, percent=100, cores=WHOLE)
    )


def _problem(found: Sequence[Request], amounts: Sequence[Mapping[str, int]]) -> str:
    if len(found) > 1:
        names = " and ".join(request.kind for request in found)
        return f"the pod requests devices of two kinds ({names}); request one kind per pod"
    if mode := found[0].note(wellknown.VNPU_MODE):
        return (
            f"the pod wants its NPUs parted as {mode!r} ({wellknown.VNPU_MODE}), and only "
            "templates are supported; leave the annotation out"
        )
    if found[0].kind == VGPU and (wrong := _vgpu_problem(amounts)):
        return wrong
    for request_part in found[0].requests if found[0].kind != WHOLE_GPU else ():
        if not 0 <= request_part.number <= MAX_NUMBER:
            return (
                f"the pod requests {request_part.number} devices; "
                f"a container may have up to {MAX_NUMBER}"
            )
        if not (0 <= request_part.cores <= WHOLE and 0 <= request_part.percent <= 100):
            return "the pod requests more than 100 per cent of a device"
        if request_part.memory < 0:
            return "the pod requests a negative amount of device memory"
    for each in amounts:
        for word, chip in CHIP_OF.items():
            if each.get(chip.resource, 0) > 1 and each.get(chip.memory_resource, 0) > 0:
                return f"the pod asks for parts of several {word}; several are only given whole"
    return ""


def _vgpu_problem(amounts: Sequence[Mapping[str, int]]) -> str:
    if not any(_wants_vgpu(each) for each in amounts):
        return (
            "only init containers of the pod ask for vGPUs, and they are given to its containers; "
            f"ask for {wellknown.VGPU_NUMBER} in one of those"
        )
    for each in amounts:
        if _wants_part(each) and not any(name in each for name in _VGPU_NAMES):
            return (
                "a container asks for cores or a percentage of a vGPU and for no vGPU; "
                f"ask for {wellknown.VGPU_NUMBER} too"
            )
    return ""


# --- allocations ------------------------------------------------------------------------------


def given_to(request: Request, annotations: Mapping[str, str]) -> tuple[DeviceAllocation, ...]:
    """Return the devices of a pod on a node: never fewer, nor less of each, than it requests.

    What the annotations do not name is UNCLEAR: another scheduler may have bound the pod, or its
    annotations were changed.
    """
    if not any(request_part.number for request_part in request.requests):
        return ()
    if request.problem or request.kind == WHOLE_GPU:
        return (UNCLEAR,)
    wanted = [request_part for request_part in request.requests for _ in range(request_part.number)]
    if request.kind == GPU:
        found = tuple(DeviceAllocation(device, 0, 0) for device in gpu_indices(annotations))
    elif request.kind == VGPU:
        found = decode(annotations.get(wellknown.VGPU_IDS_NEW, ""))
    else:
        found = decode(annotations.get(wellknown.HAMI_ALLOCATED.format(type=request.kind), ""))
    if len(found) != len(wanted):
        return (UNCLEAR,)
    return tuple(
        _at_least(given, request_part) for given, request_part in zip(found, wanted, strict=True)
    )


def _at_least(given: DeviceAllocation, request_part: DeviceRequest) -> DeviceAllocation:
    memory, cores = max(given.memory, request_part.memory), max(given.cores, request_part.cores)
    return DeviceAllocation(given.device, memory, cores, given.container, request_part.percent)


def recorded(request: Request, annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations of a pod that record its devices."""
    names = {
        GPU: (wellknown.GPU_INDEX,),
        VGPU: (wellknown.VGPU_IDS_NEW, wellknown.BIND_PHASE, wellknown.BIND_TIME),
    }.get(
        request.kind,
        (
            wellknown.HAMI_ALLOCATED.format(type=request.kind),
            wellknown.HAMI_BIND_PHASE,
            wellknown.HAMI_BIND_TIME,
        ),
    )
    return {name: annotations[name] for name in names if name in annotations}


def annotations_for(
    request: Request, given: Sequence[DeviceAllocation], node: str, now: float
) -> dict[str, str]:
    """Return the annotations written with the binding, for the device plugin and the scheduler."""
    seconds = str(int(now))
    if request.kind == GPU:
        return {
            wellknown.GPU_INDEX: ",".join(each.device for each in given),
            wellknown.PREDICATE_TIME: str(int(now * 1e9)),
        }
    if request.kind == VGPU:
        devices = encode(len(request.requests), given, _VGPU_TYPE)
        return {
            wellknown.VGPU_NODE: node,
            wellknown.VGPU_TIME: seconds,
            wellknown.VGPU_IDS_NEW: devices,
            wellknown.DEVICES_TO_ALLOCATE: devices,
            wellknown.BIND_TIME: seconds,
            wellknown.BIND_PHASE: wellknown.BIND_ALLOCATING,
        }
    devices = encode(len(request.requests), given, request.kind) + ";"
    chip = CHIP_OF[request.kind]
    parts = [
        {"UUID": each.device, "temp": name} if (name := chip.part(each.memory)[0])
        and each.cores < WHOLE else {"UUID": each.device}
        for each in given
    ]  # fmt: skip
    return {
        chip.resource: json.dumps(parts, separators=(",", ":")),
        wellknown.HAMI_TO_ALLOCATE.format(type=request.kind): devices,
        wellknown.HAMI_ALLOCATED.format(type=request.kind): devices,
        "predicate-time": seconds,
        wellknown.HAMI_VGPU_NODE: node,
        wellknown.HAMI_VGPU_TIME: seconds,
        wellknown.HAMI_BIND_TIME: seconds,
        wellknown.HAMI_BIND_PHASE: wellknown.BIND_ALLOCATING,
    }


def is_being_given(notes: Mapping[str, str], now: float, within_s: float) -> bool:
    """Tell whether the device plugin has not handled a pod's annotations yet."""
    for phase, time in (
        (wellknown.BIND_PHASE, wellknown.BIND_TIME),
        (wellknown.HAMI_BIND_PHASE, wellknown.HAMI_BIND_TIME),
    ):
        since = notes.get(time, "")
        if notes.get(phase) == wellknown.BIND_ALLOCATING and since.isdecimal():
            return now - int(since) < within_s
    return False
