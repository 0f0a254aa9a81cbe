"""RuntimeClasses: those of a hekla cluster, and what a class changes in a pod. Pure."""

from __future__ import annotations

from typing import Final

from hekla.units.objects import Object
from hekla.units.quantity import QuantityError, parse_quantity

PROCESS: Final = "process"
OCI: Final = "oci"
SIF: Final = "sif"
HANDLERS: Final = {
    PROCESS: "programs of this machine, as images.toml maps the image",
    OCI: "the container image itself, also if images.toml maps it",
    SIF: "a SIF image of Apptainer or SingularityCE",
}
"""The runtimes of hekla's node agent; each has a RuntimeClass of its name."""


class Refused(ValueError):
    """A pod contradicts its RuntimeClass; the text is kube-apiserver's."""


def runtime_class(handler: str) -> Object:
    """Return the RuntimeClass of a runtime of the node agent."""
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": handler, "annotations": {"description": HANDLERS[handler]}},
        "handler": handler,
    }


def apply_overhead(spec: Object, found: Object | None) -> None:
    """Set the overhead of a pod from its class."""
    fixed = ((found or {}).get("overhead") or {}).get("podFixed") or {}
    given = spec.get("overhead") or {}
    if given and not fixed:
        raise Refused(
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        )
    if given and not _equal_amounts(given, fixed):
        raise Refused("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
    if fixed:
        spec["overhead"] = dict(fixed)


def apply_scheduling(spec: Object, found: Object) -> None:
    """Add the node selector and the tolerations of a class to a pod."""
    placement = found.get("scheduling") or {}
    selector = dict(spec.get("nodeSelector") or {})
    for key, value in (placement.get("nodeSelector") or {}).items():
        if selector.setdefault(key, value) != value:
            raise Refused(
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
    if selector:
        spec["nodeSelector"] = selector
    if more := placement.get("tolerations"):
        spec["tolerations"] = merge_tolerations([*(spec.get("tolerations") or ()), *more])


def merge_tolerations(tolerations: list[Object]) -> list[Object]:
    """Return the tolerations without those that another one includes; the first of equal ones."""
    kept: list[Object] = []
    for number, each in enumerate(tolerations):
        later = [other for other in tolerations[number + 1 :] if other != each]
        if not any(_includes(other, each) for other in (*kept, *later)):
            kept.append(each)
    return kept


def _includes(wide: Object, narrow: Object) -> bool:
    """Return whether one toleration tolerates all that another one does."""
    if wide == narrow:
        return True
    exists = wide.get("operator") == "Exists"
    key, effect = wide.get("key") or "", wide.get("effect") or ""
    if key != (narrow.get("key") or "") and (key or not exists):
        return False
    if effect and effect != narrow.get("effect"):
        return False
    limit, other = wide.get("tolerationSeconds"), narrow.get("tolerationSeconds")
    if effect == "NoExecute" and limit is not None and (other is None or other > limit):
        return False
    if exists:
        return True
    return narrow.get("operator") != "Exists" and wide.get("value") == narrow.get("value")


def _equal_amounts(one: Object, other: Object) -> bool:
    try:
        return one.keys() == other.keys() and all(
            parse_quantity(one[name]) == parse_quantity(other[name]) for name in one
        )
    except QuantityError:
        return False
