"""Defaults of pods and of pod templates. Simple code: every pod of a gang passes through it.

A template gets only the defaults of its spec; requests from limits, service links and host ports
are set when a pod is created from it.
"""

from __future__ import annotations

from typing import Any

from hekla.api import wellknown
from hekla.units.objects import Object
from hekla.units.quantity import Quantity, QuantityError

DEFAULT_MODE = 0o644


def pod(obj: Object) -> None:
    spec = obj.get("spec")
    if spec is None:
        spec = obj["spec"] = {}
    pod_spec(spec)
    if spec.get("enableServiceLinks") is None:
        spec["enableServiceLinks"] = True
    host_network = spec.get("hostNetwork")
    for name in ("containers", "initContainers"):
        for container in spec.get(name) or ():
            resources = container["resources"]
            limits = resources.get("limits")
            if limits:
                # A limit without a request is the request.
                requests = resources.get("requests")
                if requests is None:
                    resources["requests"] = dict(limits)
                else:
                    for resource, amount in limits.items():
                        requests.setdefault(resource, amount)
            if host_network:
                for port in container.get("ports") or ():
                    if not port.get("hostPort"):
                        port["hostPort"] = port.get("containerPort", 0)


def pod_status(status: Object) -> None:
    """Set fields that clients require: strict clients reject a status without an `imageID`."""
    for name in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for one in status.get(name) or ():
            for key in ("image", "imageID"):
                one.setdefault(key, "")
            one.setdefault("ready", False)
            one.setdefault("restartCount", 0)
            for key in ("state", "lastState"):
                one.setdefault(key, {})


def template(parent: Object) -> None:
    """Apply the defaults of the pod template in a workload's spec."""
    pod_template = parent.get("template")
    if pod_template and pod_template.get("spec"):
        pod_spec(pod_template["spec"])


def pod_spec(spec: Object) -> None:
    if not spec.get("restartPolicy"):
        spec["restartPolicy"] = "Always"
    if not spec.get("dnsPolicy"):
        spec["dnsPolicy"] = "ClusterFirst"
    if not spec.get("schedulerName"):
        spec["schedulerName"] = wellknown.KUBERNETES_SCHEDULER
    if spec.get("terminationGracePeriodSeconds") is None:
        spec["terminationGracePeriodSeconds"] = 30
    if spec.get("securityContext") is None:
        spec["securityContext"] = {}
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        # Two names of one field; clients read either.
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for each in spec.get("containers") or ():
        container(each)
    for each in spec.get("initContainers") or ():
        container(each)
    for each in spec.get("ephemeralContainers") or ():
        container(each)
    for each in spec.get("volumes") or ():
        volume(each)


def container(c: Object) -> None:
    if not c.get("imagePullPolicy"):
        c["imagePullPolicy"] = pull_policy(c.get("image") or "")
    if not c.get("terminationMessagePath"):
        c["terminationMessagePath"] = "/dev/termination-log"
    if not c.get("terminationMessagePolicy"):
        c["terminationMessagePolicy"] = "File"
    if c.get("resources") is None:
        c["resources"] = {}
    for port in c.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
    for variable in c.get("env") or ():
        source = variable.get("valueFrom")
        if source:
            _field_source(source)
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        check = c.get(name)
        if check:
            probe(check)
    lifecycle = c.get("lifecycle")
    if lifecycle:
        for name in ("postStart", "preStop"):
            handler = lifecycle.get(name)
            if handler and handler.get("httpGet"):
                _http(handler["httpGet"])


def pull_policy(image: str) -> str:
    """Return whether to pull always: only for a floating tag."""
    name, _, digest = image.partition("@")
    _, colon, tag = name.rpartition("/")[2].partition(":")
    floating = tag == "latest" if colon else bool(image) and not digest
    return "Always" if floating else "IfNotPresent"


def probe(check: Object) -> None:
    if not check.get("timeoutSeconds"):
        check["timeoutSeconds"] = 1
    if not check.get("periodSeconds"):
        check["periodSeconds"] = 10
    if not check.get("successThreshold"):
        check["successThreshold"] = 1
    if not check.get("failureThreshold"):
        check["failureThreshold"] = 3
    if check.get("httpGet"):
        _http(check["httpGet"])
    grpc = check.get("grpc")
    if grpc and grpc.get("service") is None:
        grpc["service"] = ""


def _http(action: Object) -> None:
    if not action.get("path"):
        action["path"] = "/"
    if not action.get("scheme"):
        action["scheme"] = "HTTP"


def _field_source(source: Object) -> None:
    ref = source.get("fieldRef")
    if ref and not ref.get("apiVersion"):
        ref["apiVersion"] = "v1"
    ref = source.get("resourceFieldRef")
    if ref and ref.get("divisor") is None:
        ref["divisor"] = "0"


def volume(v: Object) -> None:
    if not any(value is not None for key, value in v.items() if key != "name"):
        v["emptyDir"] = {}
        return
    for name in ("secret", "configMap", "projected", "downwardAPI"):
        source = v.get(name)
        if source is not None:
            if source.get("defaultMode") is None:
                source["defaultMode"] = DEFAULT_MODE
            if name == "projected":
                for part in source.get("sources") or ():
                    _projection(part)
            elif name == "downwardAPI":
                for item in source.get("items") or ():
                    _field_source(item)
            return
    for name, defaults in _SOURCE_DEFAULTS.items():
        source = v.get(name)
        if source is not None:
            for field, default in defaults.items():
                if source.get(field) is None:
                    source[field] = default
            return
    if v.get("ephemeral"):
        claim = (v["ephemeral"].get("volumeClaimTemplate") or {}).get("spec")
        if claim is not None:
            claim_spec(claim)
    elif v.get("image") is not None and not v["image"].get("pullPolicy"):
        v["image"]["pullPolicy"] = pull_policy(v["image"].get("reference") or "")


def _projection(part: Object) -> None:
    token = part.get("serviceAccountToken")
    if token and token.get("expirationSeconds") is None:
        token["expirationSeconds"] = 3600
    for item in (part.get("downwardAPI") or {}).get("items") or ():
        _field_source(item)


def claim_spec(spec: Object) -> None:
    """Apply the defaults of a PersistentVolumeClaimSpec."""
    if spec.get("volumeMode") is None:
        spec["volumeMode"] = "Filesystem"


# Volume sources with constant defaults.
_SOURCE_DEFAULTS: dict[str, Object] = {
    "hostPath": {"type": ""},
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azureDisk": {
        "cachingMode": "ReadWrite",
        "kind": "Shared",
        "fsType": "ext4",
        "readOnly": False,
    },
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}


def volume_source(spec: Object) -> None:
    """The same for a PersistentVolumeSpec, where the source is among other fields."""
    for name, defaults in _SOURCE_DEFAULTS.items():
        source = spec.get(name)
        if source is not None:
            for field, default in defaults.items():
                if source.get(field) is None:
                    source[field] = default


def qos_class(spec: Object) -> str:
    """Return the QoS class: Guaranteed if limits equal requests for CPU and memory everywhere,
    BestEffort if there are none, else Burstable.

    Note: call it after defaulting, since requests follow limits.
    """
    has_requests = False
    guaranteed = True
    for name in ("containers", "initContainers"):
        for each in spec.get(name) or ():
            resources = each.get("resources") or {}
            requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
            for resource in (wellknown.CPU, wellknown.MEMORY):
                request, limit = requests.get(resource), limits.get(resource)
                if _positive(request) or _positive(limit):
                    has_requests = True
                if not _positive(limit) or (request is not None and not _same(request, limit)):
                    guaranteed = False
    if not has_requests:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _positive(amount: Any) -> bool:
    return amount is not None and _parse(amount) > 0


def _same(left: Any, right: Any) -> bool:
    return bool(left == right or _parse(left) == _parse(right))


def _parse(amount: Any) -> int:
    try:
        return Quantity.parse(amount).nanos
    except QuantityError:
        return 0  # the rules will report it


def _pod_template(obj: Object) -> None:
    template(obj)


TABLE = (("v1", "Pod", pod), ("v1", "PodTemplate", _pod_template))
