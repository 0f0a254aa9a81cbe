"""Records of jobs that have ended, as the history stores and serves them.

A `JobRecord` is read-only and has the same form everywhere: in the history file, in the API
(`history.hekla.io/v1`), in the SDK and in `hekla history -o json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from hekla.units.objects import Object

GROUP: Final = "history.hekla.io"
VERSION: Final = "v1"
API: Final = f"{GROUP}/{VERSION}"
KIND: Final = "JobRecord"
PLURAL: Final = "jobrecords"

CANCELLED: Final = "Cancelled"
"""The phase of a job that was deleted before it had ended."""
USAGE_CONDITION: Final = "hekla.io/ResourceUsage"
"""The pod condition in which a node agent reports what the containers have used.

Note: it is in the status because a user who may edit pods may not write their status. An annotation
could be forged by the pod's owner.
"""
MAX_MESSAGE: Final = 256
_GPU_NAMES: Final = ("gpu", "gpu-number", "vgpu-number")


class TaskRequest(msgspec.Struct, frozen=True, rename="camel"):
    """A task of a job: the number of its pods, and the requests of each."""

    name: str
    pods: int
    requests: dict[str, float] = {}


class MeasuredUsage(msgspec.Struct, frozen=True, rename="camel"):
    """What the measured pods of a job have used, and what they had requested over the same time.

    The amounts of memory are the sums of peak times run time, in byte-seconds.
    """

    pods: int
    cpu_seconds: float = 0.0
    cpu_requested_seconds: float = 0.0
    memory_peak_bytes: int = 0
    """The highest peak of one pod."""
    memory_byte_seconds: float = 0.0
    memory_requested_byte_seconds: float = 0.0


class JobRecord(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A job that has ended: its requests, its times and its outcome.

    Example:
        last: JobRecord = history(limit=1)[0]
        print(last.name, last.phase, last.cpu_efficiency)
    """

    uid: str
    namespace: str
    name: str
    phase: str
    reason: str = ""
    message: str = ""
    user: str = ""
    """The recorded submitter; empty for an administrator or a controller."""
    queue: str = ""
    priority_class: str = ""
    submitted: datetime
    started: datetime | None = None
    """When its first container started; None if none did."""
    finished: datetime
    wait_seconds: float = 0.0
    run_seconds: float = 0.0
    """From the first start to the end, restarts and suspensions included."""
    tasks: list[TaskRequest] = []
    requests: dict[str, float] = {}
    """The requests of all its pods together."""
    pods_succeeded: int = 0
    pods_failed: int = 0
    retries: int = 0
    exit_codes: dict[str, int] = {}
    """The number of pods by exit code."""
    resource_seconds: dict[str, float] = {}
    """Requests times the time for which the pods held them, by resource."""
    measured: MeasuredUsage | None = None
    """None if nothing was measured."""

    @property
    def id(self) -> str:
        """The name of the record in the API: names of jobs recur."""
        return f"{self.name}-{self.uid[:8]}"

    @property
    def short_user(self) -> str:
        """The submitter as `hekla user add` named it; else as recorded."""
        return short_user(self.user)

    @property
    def gpus(self) -> float:
        """The number of requested GPUs."""
        return gpu_amount(self.requests)

    @property
    def cpu_efficiency(self) -> float | None:
        """Used CPU time divided by the requested one; None where it was not measured."""
        if self.measured is None or not self.measured.cpu_requested_seconds:
            return None
        return self.measured.cpu_seconds / self.measured.cpu_requested_seconds

    @property
    def memory_efficiency(self) -> float | None:
        """Peak memory divided by the requested one; None where it was not measured."""
        if self.measured is None or not self.measured.memory_requested_byte_seconds:
            return None
        return self.measured.memory_byte_seconds / self.measured.memory_requested_byte_seconds


class PodUsage(msgspec.Struct, frozen=True):
    """What the containers of a pod have used together, as a node agent reports it."""

    cpu_seconds: float
    memory_peak_bytes: int


def account_of(user: str) -> str:
    """Return the service account of a user of `hekla user add`."""
    return f"system:serviceaccount:{user}:{user}"


def short_user(user: str) -> str:
    """Return `alice` for the account of a user of `hekla user add`; any other name as it is."""
    name = user.rpartition(":")[2]
    return name if user == account_of(name) else user


def gpu_amount(amounts: Mapping[str, float]) -> float:
    """Return the number of GPUs among amounts by resource name."""
    return sum(value for name, value in amounts.items() if name.rpartition("/")[2] in _GPU_NAMES)


def usage_condition(usage: PodUsage, since: str) -> Object:
    """Return the pod condition that reports usage."""
    return {
        "type": USAGE_CONDITION,
        "status": "True",
        "reason": "Measured",
        "message": msgspec.json.encode(usage).decode(),
        "lastTransitionTime": since,
    }


def reported_usage(pod: Object) -> PodUsage | None:
    """Return the usage that a node agent has reported; None if there is none or it is invalid."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == USAGE_CONDITION:
            try:
                found = msgspec.json.decode(str(condition.get("message")), type=PodUsage)
            except msgspec.MsgspecError:
                return None
            is_valid = found.cpu_seconds >= 0 and found.memory_peak_bytes >= 0
            return found if is_valid else None
    return None


def to_object(record: JobRecord) -> Object:
    """Return a record as an API object."""
    fields = msgspec.to_builtins(record)
    efficiency = {
        "cpuEfficiency": record.cpu_efficiency,
        "memoryEfficiency": record.memory_efficiency,
    }
    return {
        "apiVersion": API,
        "kind": KIND,
        "metadata": {
            "name": record.id,
            "namespace": record.namespace,
            "uid": record.uid,
            "creationTimestamp": fields["submitted"],
        },
        "record": {
            **fields,
            **{key: value for key, value in efficiency.items() if value is not None},
        },
    }


class _Item(msgspec.Struct):
    record: JobRecord


class _Metadata(msgspec.Struct, frozen=True):
    token: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    items: list[_Item] = []
    metadata: _Metadata = _Metadata()


def from_list(body: bytes) -> tuple[list[JobRecord], str]:
    """Return the records of a page of the API, and the token of the next page if there is one."""
    page = msgspec.json.decode(body, type=_List)
    return [item.record for item in page.items], page.metadata.token


def from_object(obj: Any) -> JobRecord:
    """Return the record of an API object."""
    return msgspec.convert(obj, type=_Item).record
