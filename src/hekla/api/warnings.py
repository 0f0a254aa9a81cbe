"""Warnings about accepted objects: deprecated fields, and values with surprising effects.

Pure functions, as `rules`. A warning names the field, the fact and what to use instead. The server
sends them in `Warning` headers, which clients show to users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from hekla.api import wellknown
from hekla.units.objects import Object
from hekla.units.quantity import NANOS, Quantity, QuantityError

Texts = Iterator[str]

_LABELS: Final = {
    "beta.kubernetes.io/arch": ("1.14", "kubernetes.io/arch"),
    "beta.kubernetes.io/os": ("1.14", "kubernetes.io/os"),
    "beta.kubernetes.io/instance-type": ("1.17", "node.kubernetes.io/instance-type"),
    "failure-domain.beta.kubernetes.io/region": ("1.17", "topology.kubernetes.io/region"),
    "failure-domain.beta.kubernetes.io/zone": ("1.17", "topology.kubernetes.io/zone"),
}
_VOLUMES: Final = {
    "cephfs": "1.31",
    "flocker": "1.25",
    "glusterfs": "1.26",
    "photonPersistentDisk": "1.16",
    "quobyte": "1.25",
    "rbd": "1.31",
    "scaleIO": "1.22",
    "storageos": "1.25",
}
"""Volume types and the Kubernetes release that removed them."""
_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_BYTES: Final = (wellknown.MEMORY, wellknown.EPHEMERAL_STORAGE)


def warnings(obj: Object, old: Object | None = None) -> list[str]:
    """Return the warnings of a new object, or of one that replaces `old`."""
    check = _CHECKS.get((obj.get("apiVersion", ""), obj.get("kind", "")))
    if check is None:
        return []
    if old is not None and old.get("spec") == obj.get("spec"):
        return []  # they were given when it was written
    return list(check(obj))


def finalizers(obj: Object, old: Object | None = None) -> list[str]:
    """Return the warnings of a custom object's new finalizers."""
    known = ((old or {}).get("metadata") or {}).get("finalizers") or ()
    return [
        f"metadata.finalizers: {name!r} has no domain and may be another program's; write "
        "example.com/name"
        for name in obj["metadata"].get("finalizers") or ()
        if "/" not in name and name not in known
    ]


def _deprecated_label(where: str, key: Any) -> Texts:
    found = _LABELS.get(key) if isinstance(key, str) else None
    if found is not None:
        yield f"{where}: {key} is deprecated since Kubernetes {found[0]}; use {found[1]}"


def _pod(obj: Object) -> Texts:
    if "." in obj["metadata"].get("name", ""):
        yield "metadata.name: it becomes the pod's host name, which should have no dots"
    yield from _template("", obj)


def _template(at: str, template: Object) -> Texts:
    prefix = f"{at}." if at else ""
    annotations = (template.get("metadata") or {}).get("annotations")
    if annotations:
        yield from _annotations(f"{prefix}metadata.annotations", annotations)
    spec = template.get("spec")
    if spec:
        yield from _pod_spec(f"{prefix}spec", spec)


def _annotations(at: str, annotations: Mapping[str, str]) -> Texts:
    for name in annotations:
        if name.startswith(
            ("seccomp.security.alpha.kubernetes.io/", "container.seccomp.security.alpha.")
        ):
            yield f"{at}[{name}]: has no effect since Kubernetes 1.27; use the field seccompProfile"
        elif name.startswith("container.apparmor.security.beta.kubernetes.io/"):
            yield f"{at}[{name}]: deprecated since Kubernetes 1.30; use the field appArmorProfile"


def _pod_spec(at: str, spec: Object) -> Texts:
    for key in spec.get("nodeSelector") or ():
        yield from _deprecated_label(f"{at}.nodeSelector[{key}]", key)
    if affinity := spec.get("affinity"):
        yield from _node_affinity(f"{at}.affinity.nodeAffinity", affinity.get("nodeAffinity") or {})
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        where = f"{at}.topologySpreadConstraints[{index}].topologyKey"
        yield from _deprecated_label(where, constraint.get("topologyKey"))
    for index, volume in enumerate(spec.get("volumes") or ()):
        yield from _volume(f"{at}.volumes[{index}]", volume)
    yield from _pull_secrets(f"{at}.imagePullSecrets", spec.get("imagePullSecrets") or ())
    ports: dict[tuple[Any, ...] | str, tuple[str, int, int]] = {}
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or ()):
            yield from _variables(at, group, index, container.get("env"))
            yield from _ports(at, group, index, container.get("ports"), ports)
            yield from _amounts(at, group, index, container.get("resources"))


def _node_affinity(at: str, affinity: Object) -> Texts:
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = [
        (f"{at}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{index}]", term)
        for index, term in enumerate(required.get("nodeSelectorTerms") or ())
    ]
    preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    for index, weighted in enumerate(preferred):
        where = f"{at}.preferredDuringSchedulingIgnoredDuringExecution[{index}].preference"
        terms.append((where, weighted.get("preference") or {}))
    for where, term in terms:
        for index, expression in enumerate(term.get("matchExpressions") or ()):
            key = expression.get("key")
            yield from _deprecated_label(f"{where}.matchExpressions[{index}].key", key)


def _volume(at: str, volume: Object) -> Texts:
    if "gitRepo" in volume:
        yield f"{at}.gitRepo: deprecated since Kubernetes 1.11 and off by default since 1.33"
    for name, release in _VOLUMES.items():
        if name in volume:
            yield f"{at}.{name}: has no effect since Kubernetes {release}; use a CSI volume"
    if "ephemeral" in volume:
        template = (volume["ephemeral"] or {}).get("volumeClaimTemplate") or {}
        where = f"{at}.ephemeral.volumeClaimTemplate.spec"
        yield from _claim_spec(where, template.get("spec") or {})


def _pull_secrets(at: str, secrets: Any) -> Texts:
    seen = set()
    for index, secret in enumerate(secrets):
        name = secret.get("name") or ""
        if not name:
            yield f"{at}[{index}].name: is empty, so no secret is used"
        elif name in seen:
            yield f"{at}[{index}].name: {name} is listed twice"
        seen.add(name)


def _variables(at: str, group: str, number: int, variables: Any) -> Texts:
    if not variables:
        return
    seen = set()
    for index, variable in enumerate(variables):
        name = variable.get("name")
        if name in seen:
            where = f"{at}.{group}[{number}].env[{index}]"
            yield f"{where}: hides an earlier value of {name}, which apply may drop"
        seen.add(name)


def _ports(
    at: str,
    group: str,
    number: int,
    listed: Any,
    seen: dict[tuple[Any, ...] | str, tuple[str, int, int]],
) -> Texts:
    for index, port in enumerate(listed or ()):
        key = (
            port.get("containerPort"), port.get("hostPort"), port.get("hostIP"),
            port.get("protocol"),
        )  # fmt: skip
        here = group, number, index
        first = seen.setdefault(key, here)
        if first is not here:
            one, other = (f"{at}.{g}[{n}].ports[{i}]" for g, n, i in (here, first))
            yield f"{one}: is the same port as {other}"
        name = port.get("name")
        first = seen.setdefault(name, here) if name else here
        if first is not here and group == "containers":
            one, other = (f"{at}.{g}[{n}].ports[{i}]" for g, n, i in (here, first))
            yield f"{one}: has the name of {other}, which services and probes will use"


def _amounts(at: str, group: str, number: int, resources: Any) -> Texts:
    if not resources:
        return
    for section in ("limits", "requests"):
        amounts = resources.get(section)
        if amounts:
            for name in _BYTES:
                if name in amounts and _is_fraction(amounts[name]):
                    where = f"{at}.{group}[{number}].resources.{section}[{name}]"
                    yield _fraction(where, amounts[name])


def _is_fraction(amount: Any) -> bool:
    try:
        return Quantity.parse(amount).nanos % NANOS != 0
    except QuantityError:
        return False  # refused elsewhere


def _fraction(at: str, amount: Any) -> str:
    return f"{at}: {amount} is a fraction of a byte; write whole bytes, such as 512Mi"


def _claim_spec(at: str, spec: Object) -> Texts:
    amount = ((spec.get("resources") or {}).get("requests") or {}).get(wellknown.STORAGE)
    if amount is not None and _is_fraction(amount):
        yield _fraction(f"{at}.resources.requests[storage]", amount)


def _claim(obj: Object) -> Texts:
    if _STORAGE_CLASS in (obj["metadata"].get("annotations") or {}):
        yield f"metadata.annotations[{_STORAGE_CLASS}]: deprecated; use spec.storageClassName"
    yield from _claim_spec("spec", obj.get("spec") or {})


def _storage_class(obj: Object) -> Texts:
    for number, term in enumerate(obj.get("allowedTopologies") or ()):
        for index, expression in enumerate(term.get("matchLabelExpressions") or ()):
            where = f"allowedTopologies[{number}].matchLabelExpressions[{index}].key"
            yield from _deprecated_label(where, expression.get("key"))


def _service(obj: Object) -> Texts:
    if "service.kubernetes.io/topology-aware-hints" in (obj["metadata"].get("annotations") or {}):
        yield (
            "metadata.annotations[service.kubernetes.io/topology-aware-hints]: deprecated; use "
            "spec.trafficDistribution"
        )
    spec = obj.get("spec") or {}
    if spec.get("externalIPs"):
        yield "spec.externalIPs: deprecated, and not implemented by every cluster"
    if spec.get("clusterIP") == "None" and spec.get("sessionAffinity") == "ClientIP":
        yield "spec.sessionAffinity: has no effect on a headless service"
    if spec.get("externalName") and spec.get("type") != "ExternalName":
        yield "spec.externalName: has no effect unless spec.type is ExternalName"
    if spec.get("trafficDistribution") == "PreferClose":
        yield "spec.trafficDistribution: PreferClose is deprecated; use PreferSameZone"


def _ingress(obj: Object) -> Texts:
    if "kubernetes.io/ingress.class" in (obj["metadata"].get("annotations") or {}):
        yield (
            "metadata.annotations[kubernetes.io/ingress.class]: deprecated; use "
            "spec.ingressClassName"
        )


def _service_account(obj: Object) -> Texts:
    name = "kubernetes.io/enforce-mountable-secrets"
    if name in (obj["metadata"].get("annotations") or {}):
        yield (
            f"metadata.annotations[{name}]: deprecated since Kubernetes 1.32; use a namespace "
            "for each group of secrets"
        )


def _at(*path: str, dots: bool = True) -> Callable[[Object], Texts]:
    def check(obj: Object) -> Texts:
        if dots and "." in obj["metadata"].get("name", ""):
            yield "metadata.name: it becomes part of host names of pods, which should have no dots"
        template: Any = obj
        for name in path:
            template = template.get(name) or {}
        yield from _template(".".join(path), template)

    return check


_TEMPLATE = _at("spec", "template")

_CHECKS: Final[dict[tuple[str, str], Callable[[Object], Texts]]] = {
    ("v1", "Pod"): _pod,
    ("v1", "PodTemplate"): _at("template", dots=False),
    ("v1", "ReplicationController"): _TEMPLATE,
    ("apps/v1", "ReplicaSet"): _TEMPLATE,
    ("apps/v1", "Deployment"): _TEMPLATE,
    ("apps/v1", "StatefulSet"): _TEMPLATE,
    ("apps/v1", "DaemonSet"): _at("spec", "template", dots=False),
    ("batch/v1", "Job"): _TEMPLATE,
    ("batch/v1", "CronJob"): _at("spec", "jobTemplate", "spec", "template"),
    ("v1", "PersistentVolumeClaim"): _claim,
    ("v1", "Service"): _service,
    ("v1", "ServiceAccount"): _service_account,
    ("storage.k8s.io/v1", "StorageClass"): _storage_class,
    ("networking.k8s.io/v1", "Ingress"): _ingress,
}
