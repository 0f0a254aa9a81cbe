"""Rules of pods and pod templates, and of updates of pods.

A pod is nearly immutable: images, additional tolerations, a shorter deadline and fewer scheduling
gates are allowed. A gated pod has not been scheduled, so its node selection may still be narrowed.
"""

from __future__ import annotations

import ipaddress
import json
from typing import Any, Final

from hekla.api.rules import amounts, names
from hekla.api.rules.claims import claim_spec
from hekla.api.rules.containers import RESTART_POLICIES, containers, relative_path
from hekla.api.rules.fields import (
    FieldErrors,
    between,
    duplicate,
    forbidden,
    invalid,
    one_of,
    required,
)
from hekla.api.rules.placement import REQUIRED, placement
from hekla.units.objects import Object
from hekla.units.selectors import label_key_problem

DNS_POLICIES: Final = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
PREEMPTION: Final = ("Never", "PreemptLowerPriority")
MAX_DEADLINE: Final = 2**31 - 1


def pod(obj: Object, old: Object | None) -> FieldErrors:
    spec = obj.get("spec") or {}
    yield from pod_spec("spec", spec)
    if old is None:
        if spec.get("schedulingGates") and spec.get("nodeName"):
            yield forbidden("spec.nodeName", "cannot be set until all schedulingGates are removed")
    else:
        yield from _update(spec, old.get("spec") or {})


def template(
    path: str, pod_template: Object | None, restart_policies: tuple[str, ...] = RESTART_POLICIES
) -> FieldErrors:
    """Check the pod template at `path`."""
    if not pod_template or not pod_template.get("spec"):
        yield required(f"{path}.spec")
        return
    meta = pod_template.get("metadata") or {}
    yield from names.label_map(f"{path}.metadata.labels", meta.get("labels"))
    yield from names.annotation_map(f"{path}.metadata.annotations", meta.get("annotations"))
    yield from pod_spec(f"{path}.spec", pod_template["spec"], restart_policies)


def pod_spec(
    path: str, spec: Object, restart_policies: tuple[str, ...] = RESTART_POLICIES
) -> FieldErrors:
    """Check a pod spec. Also used for the templates of Volcano's tasks."""
    volumes = spec.get("volumes") or []
    yield from _volumes(f"{path}.volumes", volumes)
    volume_names = frozenset(v.get("name", "") for v in volumes)
    yield from containers(path, spec, volume_names)
    yield from placement(path, spec)
    yield from one_of(f"{path}.restartPolicy", spec.get("restartPolicy"), restart_policies)
    yield from _dns(path, spec)
    if spec.get("activeDeadlineSeconds") is not None:
        deadline = spec["activeDeadlineSeconds"]
        yield from between(f"{path}.activeDeadlineSeconds", deadline, 1, MAX_DEADLINE)
    grace = spec.get("terminationGracePeriodSeconds")
    if isinstance(grace, int) and grace > MAX_DEADLINE:
        # Kubernetes accepts it. Its time of deletion overflows, to the year 2090 for 10^15 s.
        yield invalid(
            f"{path}.terminationGracePeriodSeconds", grace, f"must be at most {MAX_DEADLINE}"
        )
    for field, problem in _NAMES.items():
        if spec.get(field):
            yield from names.checked(f"{path}.{field}", spec[field], problem)
    if spec.get("preemptionPolicy"):
        yield from one_of(f"{path}.preemptionPolicy", spec["preemptionPolicy"], PREEMPTION)
    yield from _gates(f"{path}.schedulingGates", spec.get("schedulingGates") or ())
    if spec.get("overhead"):
        yield from amounts.resource_list(f"{path}.overhead", spec["overhead"])
    if spec.get("resources"):
        yield from amounts.container_resources(f"{path}.resources", spec["resources"])
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        yield from _address(f"{path}.hostAliases[{index}].ip", alias.get("ip"))


_NAMES: Final = {
    "nodeName": names.dns_subdomain,
    "serviceAccountName": names.dns_subdomain,
    "priorityClassName": names.dns_subdomain,
    "runtimeClassName": names.dns_subdomain,
    "schedulerName": names.dns_subdomain,
    "hostname": names.dns_label,
    "subdomain": names.dns_label,
}


def _dns(path: str, spec: Object) -> FieldErrors:
    policy = spec.get("dnsPolicy")
    if policy:
        yield from one_of(f"{path}.dnsPolicy", policy, DNS_POLICIES)
    if policy == "None":
        if not spec.get("dnsConfig"):
            yield required(f"{path}.dnsConfig", "needed when dnsPolicy is None")
        elif not spec["dnsConfig"].get("nameservers"):
            yield required(f"{path}.dnsConfig.nameservers", "needed when dnsPolicy is None")


def _gates(path: str, gates: Any) -> FieldErrors:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name")
        if name in seen:
            yield duplicate(f"{path}[{index}]", name)
        seen.add(name)
        if not name:
            yield required(f"{path}[{index}].name")
        elif why := label_key_problem(name):
            yield invalid(f"{path}[{index}].name", name, why)


def _address(field: str, text: Any) -> FieldErrors:
    try:
        ipaddress.ip_address(text or "")
    except ValueError:
        yield invalid(field, text, "must be an IPv4 or IPv6 address")


# --- volumes ----------------------------------------------------------------------------------

_NEEDED: Final = {
    "secret": "secretName",
    "configMap": "name",
    "persistentVolumeClaim": "claimName",
    "hostPath": "path",
    "nfs": "server",
    "csi": "driver",
}


def _volumes(path: str, volumes: list[Object]) -> FieldErrors:
    yield from names.unique(path, volumes)
    for index, volume in enumerate(volumes):
        at = f"{path}[{index}]"
        yield from names.checked(f"{at}.name", volume.get("name"), names.dns_label)
        sources = [k for k, v in volume.items() if k != "name" and v is not None]
        for name in sources[1:]:
            yield forbidden(f"{at}.{name}", "may not specify more than 1 volume type")
        for name in sources[:1]:
            yield from _source(f"{at}.{name}", name, volume[name])


def _source(at: str, name: str, source: Object) -> FieldErrors:
    needed = _NEEDED.get(name)
    if needed and not source.get(needed):
        yield required(f"{at}.{needed}")
    if name == "hostPath" and ".." in (source.get("path") or "").split("/"):
        yield invalid(f"{at}.path", source["path"], "must not contain '..'")
    if name == "emptyDir" and source.get("sizeLimit") is not None:
        yield from amounts.non_negative(f"{at}.sizeLimit", source["sizeLimit"])
    if source.get("defaultMode") is not None:
        yield from between(f"{at}.defaultMode", source["defaultMode"], 0, 0o777)
    if name in ("secret", "configMap"):
        yield from _items(at, source)
    if name == "ephemeral":
        claim = source.get("volumeClaimTemplate") or {}
        yield from claim_spec(f"{at}.volumeClaimTemplate.spec", claim.get("spec") or {})
    for index, part in enumerate(source.get("sources") or () if name == "projected" else ()):
        for kind in ("secret", "configMap"):
            if part.get(kind) is not None:
                where = f"{at}.sources[{index}].{kind}"
                if not part[kind].get("name"):
                    yield required(f"{where}.name")
                yield from _items(where, part[kind])


def _items(at: str, source: Object) -> FieldErrors:
    for index, item in enumerate(source.get("items") or ()):
        where = f"{at}.items[{index}]"
        if not item.get("key"):
            yield required(f"{where}.key")
        if not item.get("path"):
            yield required(f"{where}.path")
        else:
            yield from relative_path(f"{where}.path", item["path"])
        if item.get("mode") is not None:
            yield from between(f"{where}.mode", item["mode"], 0, 0o777)


# --- updates ----------------------------------------------------------------------------------


def _update(new: Object, old: Object) -> FieldErrors:
    yield from _deadline(new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds"))
    yield from _only_added_tolerations(new.get("tolerations") or [], old.get("tolerations") or [])
    old_gates = {gate.get("name") for gate in old.get("schedulingGates") or ()}
    for index, gate in enumerate(new.get("schedulingGates") or ()):
        if gate.get("name") not in old_gates:
            field = f"spec.schedulingGates[{index}].name"
            yield forbidden(field, f"gates can only be removed, and {gate.get('name')!r} is new")
    for section in ("containers", "initContainers"):
        if len(new.get(section) or ()) != len(old.get(section) or ()):
            yield forbidden(f"spec.{section}", "containers can be neither added nor removed")
            return
    selector = new.get("nodeSelector") or {}
    if old_gates and not (old.get("nodeSelector") or {}).items() <= selector.items():
        yield invalid("spec.nodeSelector", selector, "only additions are allowed while gated")
    after, before = _neutral(new, old, gated=bool(old_gates)), _neutral(old, old, gated=False)
    if after != before:
        yield forbidden(
            "spec",
            "a pod can only change its containers' images, activeDeadlineSeconds, "
            "tolerations (additions) and schedulingGates (removals); changed: "
            + ", ".join(_changed(after, before)),
        )


def _deadline(new: Any, old: Any) -> FieldErrors:
    if old is not None and (new is None or new > old):
        yield invalid(
            "spec.activeDeadlineSeconds", new, "may be set or lowered, but not raised or removed"
        )


def _only_added_tolerations(new: list[Object], old: list[Object]) -> FieldErrors:
    def identity(toleration: Object) -> frozenset[tuple[str, Any]]:
        # The toleration seconds may change; everything else identifies the toleration.
        return frozenset((k, v) for k, v in toleration.items() if k != "tolerationSeconds")

    kept = {identity(toleration) for toleration in new}
    for before in old:
        if identity(before) not in kept:
            yield forbidden(
                "spec.tolerations", f"existing tolerations can not be removed or changed: {before}"
            )


def _neutral(spec: Object, old: Object, *, gated: bool) -> Object:
    """Return the spec with all mutable fields taken from `old`, for comparison.

    Images are dropped: only the container that they belong to matters.
    """
    free = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
    rest = {k: v for k, v in spec.items() if k not in free and v not in (None, [], {})}
    for section in ("containers", "initContainers"):
        if section in rest:
            rest[section] = [{**c, "image": ""} for c in rest[section]]
    if gated:
        _replace(rest, "nodeSelector", old.get("nodeSelector"))  # checked separately
        if _narrows(spec.get("affinity") or {}, old.get("affinity") or {}):
            _replace(rest, "affinity", old.get("affinity"))
    return rest


def _replace(rest: Object, field: str, value: Any) -> None:
    rest.pop(field, None)
    if value:
        rest[field] = value


def _narrows(new: Object, old: Object) -> bool:
    """Return whether a gated pod's node affinity is stricter and other affinity is unchanged."""

    def without_node(affinity: Object) -> Object:
        return {k: v for k, v in affinity.items() if k != "nodeAffinity" and v}

    if without_node(new) != without_node(old):
        return False
    before = ((old.get("nodeAffinity") or {}).get(REQUIRED) or {}).get("nodeSelectorTerms")
    after = ((new.get("nodeAffinity") or {}).get(REQUIRED) or {}).get("nodeSelectorTerms")
    if not before:
        return True
    if not after or len(after) != len(before):
        return False

    def kept(a: Object, b: Object) -> bool:
        for field in ("matchExpressions", "matchFields"):
            given = {json.dumps(each, sort_keys=True) for each in a.get(field) or ()}
            if any(json.dumps(each, sort_keys=True) not in given for each in b.get(field) or ()):
                return False
        return True

    return all(kept(a, b) for a, b in zip(after, before, strict=True))


def _changed(new: Object, old: Object) -> list[str]:
    return sorted(k for k in new.keys() | old.keys() if new.get(k) != old.get(k))


def _pod_template(obj: Object, old: Object | None) -> FieldErrors:
    yield from template("template", obj.get("template"))


TABLE = (("v1", "Pod", pod), ("v1", "PodTemplate", _pod_template))
