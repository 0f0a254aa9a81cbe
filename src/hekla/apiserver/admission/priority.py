"""Priority: resolve a pod's PriorityClass to its value at creation.

Classes above the highest priority of users (`system-node-critical`, `system-cluster-critical`) are
for the system's namespaces, and for namespaces with a ResourceQuota whose scope names the class.
Kubernetes admits them everywhere unless it is configured so.
"""

from __future__ import annotations

import msgspec

from hekla.api import wellknown
from hekla.apiserver.admission.plugin import AdmissionPlugin, Attributes, RelatedWrite
from hekla.units.objects import Object

_WITH_CLASS = frozenset({"pods", "batch.volcano.sh/jobs", "scheduling.volcano.sh/podgroups"})
_SYSTEM_NAMESPACES = frozenset({"kube-system", wellknown.SYSTEM_NAMESPACE})
CLASSES = "scheduling.k8s.io/priorityclasses"


class Priority(AdmissionPlugin):
    def mutate(self, attributes: Attributes) -> None:
        if not attributes.creates("pods"):
            return
        spec = attributes.obj["spec"]
        name = spec.get("priorityClassName")
        priority_class = self._class(name) if name else self._default()
        if name and priority_class is None:
            raise attributes.forbid(f"no PriorityClass with name {name} was found")
        value = priority_class["value"] if priority_class else 0
        if spec.get("priority") not in (None, value):
            raise attributes.forbid(
                "the integer value of priority must not be provided in pod spec; priority "
                f"admission controller computed {value} from the given PriorityClass name"
            )
        spec["priority"] = value
        if priority_class:
            spec["priorityClassName"] = priority_class["metadata"]["name"]
        policy = (priority_class or {}).get("preemptionPolicy") or "PreemptLowerPriority"
        if spec.get("preemptionPolicy") not in (None, policy):
            raise attributes.forbid(
                "the string value of PreemptionPolicy must not be provided in pod spec; priority "
                f"admission controller computed {policy} from the given PriorityClass name"
            )
        spec["preemptionPolicy"] = policy

    def validate(self, attributes: Attributes) -> list[RelatedWrite]:
        if attributes.verb != "delete" and attributes.served.storage in _WITH_CLASS:
            name = _class_name(attributes.obj)
            if name and (attributes.old is None or _class_name(attributes.old) != name):
                self._check_system_class(attributes, name)
        if attributes.verb != "delete" and attributes.served.storage == CLASSES:
            current = self._default()
            mine = attributes.obj["metadata"]["name"]
            if attributes.obj.get("globalDefault") and current:
                other = current["metadata"]["name"]
                if other != mine:
                    raise attributes.forbid(
                        f"PriorityClass {other} is already marked as default. Only one default "
                        "can exist"
                    )
        return []

    def _check_system_class(self, attributes: Attributes, name: str) -> None:
        found = self._class(name)
        is_users = found is None or found["value"] <= wellknown.HIGHEST_USER_PRIORITY
        namespace = attributes.namespace
        if is_users or namespace in _SYSTEM_NAMESPACES or self._has_quota(namespace, name):
            return
        raise attributes.forbid(
            f"spec.priorityClassName: {name} is for the system. Choose another class, or have an "
            f"administrator create a ResourceQuota in the namespace {namespace} with a "
            f"scopeSelector for PriorityClass In [{name}]"
        )

    def _has_quota(self, namespace: str, name: str) -> bool:
        """Return whether a quota of the namespace is for this class."""
        table = self.store.table("resourcequotas")
        for key in table.range(f"{namespace}/"):
            spec = msgspec.json.decode(table.entries[key].body).get("spec") or {}
            for scope in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
                names = (scope.get("scopeName"), scope.get("operator"))
                if names == ("PriorityClass", "In") and name in (scope.get("values") or ()):
                    return True
        return False

    def _class(self, name: str) -> Object | None:
        entry = self.store.head(CLASSES, name)
        return msgspec.json.decode(entry.body) if entry is not None else None

    def _default(self) -> Object | None:
        """Return the class of pods without one: the global default with the lowest value."""
        default: Object | None = None
        for entry in self.store.table(CLASSES).entries.values():
            if b'"globalDefault":true' in entry.body:
                one: Object = msgspec.json.decode(entry.body)
                if default is None or one["value"] < default["value"]:
                    default = one
        return default


def _class_name(obj: Object) -> str:
    return str((obj.get("spec") or {}).get("priorityClassName") or "")
