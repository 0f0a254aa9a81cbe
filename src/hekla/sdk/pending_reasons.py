"""Why a job does not run: the reasons in its pods, its PodGroup and its events. Pure functions.

Each reason has the next step, unless its text contains one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from hekla.api.wellknown import QUEUE_ALLOCATION_GATE, GroupCondition, PodPhase, PodReason
from hekla.units.objects import Object

STARTING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons of a container that is about to start."""
PULLING: Final = "ContainerCreating"
"""With a message: hekla pulls the image, and the message tells how far it is."""
CRASH_LOOP: Final = "CrashLoopBackOff"
MAX_TEXT: Final = 2000
_COUNT: Final = re.compile(r"^\d+ of \d+ pods: ")
# The scheduler's message starts with a count that its reason repeats.
_GANG: Final = re.compile(r"^\d+/\d+ tasks in gang unschedulable: ")
_USED: Final = re.compile(r"\bused [0-9][^ ,;)]*")
_AGAIN_AFTER_FAILURE: Final = "correct the command; with restartPolicy: Never the job would fail"
_AGAIN_AFTER_SUCCESS: Final = (
    "set restartPolicy: OnFailure or Never; Always, the default of pods, starts a container again "
    "after success"
)
# The scheduler writes its verdict into the PodGroup and its pods; these events repeat it, or repeat
# a container's status.
_REPEATING_EVENTS: Final = frozenset(
    {
        "PodGroupPending",
        "Unschedulable",
        "FailedScheduling",
        "BackOff",
        "InspectFailed",
        "ImageNotMapped",
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "FailedCreatePodSandBox",
    }
)
_NEXT_STEP: Final = {
    "ImageNotMapped": "do so, or use `image: host`, which runs this machine's programs",
    "CreateContainerConfigError": "correct the spec, or create what it names: then the pod starts",
    "ErrImagePull": "check the name of the image, and the pull secrets of the pod",
    "ImagePullBackOff": "check the name of the image, and the pull secrets of the pod",
    "ErrImageNeverPull": "load the image, or change imagePullPolicy",
    "FailedCreatePodSandBox": "delete the pod, and set another runtimeClassName or none",
    "InvalidImageName": "correct the name of the image",
    "FailedMount": "create the volume or the object that it names: then the pod starts",
    "FailedAttachVolume": "check the PersistentVolume and the node of the pod",
    "Evicted": "raise the pod's requests, or free what its node lacks",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason. Equal `core`s are one reason, reported for several pods or several times."""

    text: str
    core: str
    hint: str = ""


def of_group(group: Object | None) -> Iterator[Reason]:
    """Yield the scheduler's verdict on a job: why its gang is not placed."""
    for condition in ((group or {}).get("status") or {}).get("conditions") or ():
        if condition.get("type") == GroupCondition.UNSCHEDULABLE and (
            condition.get("status") == "True"
        ):
            message = _GANG.sub("", _bounded(condition.get("message") or condition.get("reason")))
            if message:
                # What is used changes with every other job; the reason stays the same.
                yield Reason(message, _USED.sub("used …", message))
            return


def of_pod(pod: Object) -> Iterator[Reason]:
    """Yield why a pod is not placed, does not start or does not stay up."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    if metadata.get("deletionTimestamp") or status.get("phase") == PodPhase.SUCCEEDED:
        return
    name = str(metadata["name"])
    if status.get("phase") == PodPhase.FAILED:
        if why := status.get("reason"):
            yield _reason(name, "failed", why, status.get("message"))
        return
    yield from _not_placed(pod, name)
    statuses = status.get("initContainerStatuses") or (), status.get("containerStatuses") or ()
    for one in chain(*statuses):
        waiting = (one.get("state") or {}).get("waiting") or {}
        why = waiting.get("reason") or ""
        if why == CRASH_LOOP:
            yield _crash_loop(name, one)
        elif why == PodReason.NODE_SHUTDOWN:
            message = _bounded(waiting.get("message"))
            hint = "`hekla up` starts the cluster again"
            yield Reason(f"pod {name} is suspended: {message}", message, hint)
        elif why == PULLING and waiting.get("message"):
            message = _bounded(waiting["message"])
            # How far it is changes all the time, and is no other reason.
            yield Reason(f"pod {name} waits: {message}", message[: message.rfind('"') + 1])
        elif why not in STARTING:
            yield _reason(name, "cannot start", why, waiting.get("message"))


def gates_of(pod: Object) -> list[str]:
    """Return the names of a pod's scheduling gates."""
    return [str(gate.get("name")) for gate in (pod.get("spec") or {}).get("schedulingGates") or ()]


def _not_placed(pod: Object, name: str) -> Iterator[Reason]:
    if (pod.get("spec") or {}).get("nodeName"):
        return
    gates = gates_of(pod)
    if gates == [QUEUE_ALLOCATION_GATE]:
        yield Reason(
            f"pod {name} waits for its queue, whose limits do not allow it yet ({gates[0]})",
            f"queue gate {gates[0]}",
            "`hekla queue top` shows its use; the scheduler removes the gate when the queue allows",
        )
        return
    if gates:
        listed = ", ".join(gates)
        yield Reason(
            f"pod {name} is held by its scheduling gate {listed}",
            f"scheduling gate {listed}",
            "the pod is scheduled when the gate is removed: "
            f"kubectl -n {pod['metadata'].get('namespace')} patch pod {name} --type json "
            """-p '[{"op": "remove", "path": "/spec/schedulingGates"}]'""",
        )
        return
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            if condition.get("reason") == PodReason.SCHEDULING_GATED:
                return  # its gates are gone, and the scheduler has not replaced the condition yet
            message = _bounded(condition.get("message") or condition.get("reason"))
            hint = "create the claim" if "persistentvolumeclaim" in message else ""
            yield Reason(f"pod {name} cannot be placed: {message}", _core(message, name), hint)


def _crash_loop(name: str, status: Object) -> Reason:
    container = status.get("name")
    last = (status.get("lastState") or {}).get("terminated") or {}
    code = last.get("exitCode", "unknown")
    return Reason(
        f"container {container} of pod {name} ended with exit code {code} and is restarted after "
        f"longer and longer delays ({CRASH_LOOP})",
        f"{CRASH_LOOP} of {container}",
        _AGAIN_AFTER_SUCCESS if code == 0 else _AGAIN_AFTER_FAILURE,
    )


def of_event(event: Object) -> Iterator[Reason]:
    """Yield the reason in a warning: volumes, quotas, admission and what else has no status."""
    why = str(event.get("reason") or "")
    if event.get("type") != "Warning" or why in _REPEATING_EVENTS:
        return
    about: dict[str, Any] = event.get("involvedObject") or {}
    message = _bounded(event.get("message"))
    name = str(about.get("name") or "")
    what = f"pod {name}: " if about.get("kind") == "Pod" else ""
    text = f"{what}{why}: {message}" if message else f"{what}{why}"
    yield Reason(text, _core(message or why, name), _event_hint(why, message))


def _event_hint(why: str, message: str) -> str:
    if "exceeded quota" in message:
        return (
            "the pods are created when the quota allows it: wait for other pods, or raise the quota"
        )
    if "PodSecurity" in message:
        return "correct the securityContext, or use a namespace that allows it"
    return _NEXT_STEP.get(why, "")


def _reason(pod: str, what: str, why: Any, message: Any) -> Reason:
    detail = _bounded(message)
    text = f"pod {pod} {what}: {why}: {detail}" if detail else f"pod {pod} {what}: {why}"
    return Reason(text, _core(detail or str(why), pod), _NEXT_STEP.get(str(why), ""))


def _core(message: str, pod: str) -> str:
    """Return a message without the name of its pod, the number of pods and what is used: all pods
    of a task have the same problem.
    """
    message = _USED.sub("used …", _COUNT.sub("", message))
    return message.replace(pod, "…") if pod else message


def _bounded(text: Any) -> str:
    return " ".join(str(text or "").split())[:MAX_TEXT]
