"""PodSecurity: refuse pods that violate the Pod Security Standards of their namespace.

Workloads with pod templates are not refused: as in Kubernetes the client gets a warning, and
their pods are refused. Audit goes to the log `hekla.apiserver.audit`.

Note: no user is exempt. Controllers create pods from what tenants wrote.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from hekla.api import pod_security
from hekla.api.pod_security import Policy
from hekla.api.rules import causes
from hekla.apiserver import errors
from hekla.apiserver.admission.plugin import AdmissionPlugin, Attributes, RelatedWrite
from hekla.apiserver.storage.watch_cache import Entry
from hekla.units.objects import Object

if TYPE_CHECKING:
    from hekla.apiserver.registry.resources import Resources

audit = logging.getLogger("hekla.apiserver.audit")

PRIVILEGED_NAMESPACES = frozenset({"kube-system"})
"""Namespaces of the system itself: privileged, unless their labels say otherwise."""
_MAX_PODS = 3000
_PRIVILEGED = pod_security.default_policy("privileged")


class PodSecurity(AdmissionPlugin):
    def __init__(self, resources: Resources, default_level: str) -> None:
        super().__init__(resources)
        self._default = pod_security.default_policy(default_level)
        self._policies: dict[str, tuple[Entry, Policy]] = {}

    def validate(self, attributes: Attributes) -> list[RelatedWrite]:
        if attributes.verb == "delete" or attributes.options.subresource:
            return []
        storage, kind = attributes.served.storage, attributes.served.kind
        if storage == "pods":
            self._check_pod(attributes)
        elif storage == "namespaces":
            self._check_namespace(attributes)
        else:
            for task, template in pod_security.pod_templates(kind.group, kind.kind, attributes.obj):
                self._warn(attributes, self._policy_of(attributes.namespace), template, task)
        return []

    def _policy_of(self, namespace: str) -> Policy:
        entry = self.store.head("namespaces", namespace)
        if entry is None:
            return self._read(namespace, {})
        known = self._policies.get(namespace)
        if known is None or known[0] is not entry:
            labels = _labels(msgspec.json.decode(entry.body))
            known = self._policies[namespace] = (entry, self._read(namespace, labels))
        return known[1]

    def _read(self, namespace: str, labels: dict[str, str]) -> Policy:
        is_system = namespace in PRIVILEGED_NAMESPACES
        return pod_security.read_policy(labels, _PRIVILEGED if is_system else self._default)[0]

    def _check_pod(self, attributes: Attributes) -> None:
        pod, old = attributes.obj, attributes.old
        if old is not None and not _is_significant(pod, old):
            return
        policy = self._policy_of(attributes.namespace)
        found = pod_security.violations(policy.enforce.level, pod)
        if found:
            raise attributes.forbid(f'violates PodSecurity "{policy.enforce}": {found}')
        if policy.warn != policy.enforce or policy.audit != policy.enforce:
            self._warn(attributes, policy, pod)

    def _warn(
        self, attributes: Attributes, policy: Policy, template: Object, task: str = ""
    ) -> None:
        prefix = f'task "{task}": ' if task else ""
        warned = pod_security.violations(policy.warn.level, template)
        if warned:
            message = f'{prefix}would violate PodSecurity "{policy.warn}": {warned}'
            # Admission may validate twice: before and after webhooks.
            if message not in attributes.options.warnings:
                attributes.options.warnings.append(message)
        same = policy.audit.level == policy.warn.level
        found = warned if same else pod_security.violations(policy.audit.level, template)
        if found:
            audit.info(
                '%s %s/%s by %s: %swould violate PodSecurity "%s": %s',
                attributes.served.kind.plural,
                attributes.namespace,
                attributes.obj["metadata"].get("name", ""),
                attributes.options.user.name,
                prefix,
                policy.audit,
                found,
            )

    def _check_namespace(self, attributes: Attributes) -> None:
        obj, old = attributes.obj, attributes.old
        labels = _labels(obj)
        field_errors = list(pod_security.check_labels(labels, _labels(old) if old else None))
        if field_errors:
            raise errors.invalid("", "Namespace", obj["metadata"]["name"], causes(field_errors))
        if old is not None and labels != _labels(old):
            for warning in self._violating_pods(obj, old):
                if warning not in attributes.options.warnings:
                    attributes.options.warnings.append(warning)

    def _violating_pods(self, namespace: Object, old: Object) -> Iterator[str]:
        """Yield a warning for pods that a stricter level would refuse; they keep running."""
        name = namespace["metadata"]["name"]
        enforce = self._read(name, _labels(namespace)).enforce
        before = self._read(name, _labels(old)).enforce
        levels = pod_security.LEVELS
        if levels.index(enforce.level) <= levels.index(before.level):
            return
        table = self.store.table("pods")
        keys = list(table.range(f"{name}/"))
        found: dict[str, list[str]] = {}
        for key in keys[:_MAX_PODS]:
            pod = msgspec.json.decode(table.entries[key].body)
            reasons = pod_security.reasons(enforce.level, pod)
            if reasons:
                found.setdefault(reasons, []).append(pod["metadata"]["name"])
        if len(keys) > _MAX_PODS:
            yield (
                f"new PodSecurity enforce level only checked against the first {_MAX_PODS} of "
                f"{len(keys)} existing pods"
            )
        if found:
            yield (
                f'existing pods in namespace "{name}" violate the new PodSecurity enforce level '
                f'"{enforce}"'
            )
        yield from sorted(f"{_first(pods)}: {reasons}" for reasons, pods in found.items())


def _first(names: list[str]) -> str:
    more = len(names) - 1
    if not more:
        return names[0]
    return f"{min(names)} (and {more} other pod{'s' if more > 1 else ''})"


def _labels(obj: Object) -> dict[str, str]:
    return (obj.get("metadata") or {}).get("labels") or {}


def _is_significant(pod: Object, old: Object) -> bool:
    """Return whether an update adds containers or changes images; other fields are immutable."""
    kinds = ("containers", "initContainers", "ephemeralContainers")
    return any(_images(pod, kind) != _images(old, kind) for kind in kinds)


def _images(pod: Object, kind: str) -> list[tuple[object, object]]:
    return [(c.get("name"), c.get("image")) for c in pod["spec"].get(kind) or ()]
