"""NodeNames: to name a pod's node is to bind it, and needs that right.

A pod that is created with `spec.nodeName` bypasses scheduler, queues and capacity. Kubernetes
admits it; hekla requires the right to create `pods/binding`. Pod templates are checked where a
user writes them, because controllers create the pods with rights of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hekla.api.pod_security import pod_templates
from hekla.apiserver.admission.plugin import AdmissionPlugin, Attributes, RelatedWrite
from hekla.apiserver.auth.rbac import Authorizer
from hekla.apiserver.request_info import RequestInfo
from hekla.units.objects import Object

if TYPE_CHECKING:
    from hekla.apiserver.registry.resources import Resources


class NodeNames(AdmissionPlugin):
    def __init__(self, resources: Resources, authorizer: Authorizer) -> None:
        super().__init__(resources)
        self._authorizer = authorizer

    def validate(self, attributes: Attributes) -> list[RelatedWrite]:
        if attributes.verb == "delete" or attributes.options.subresource:
            return []
        if attributes.served.storage == "pods":
            # `spec.nodeName` cannot be changed by an update.
            spec = attributes.obj["spec"]
            if attributes.verb == "create" and spec.get("nodeName"):
                self._check(attributes, "spec.nodeName", spec["nodeName"])
            return []
        for where, node in self._nodes(attributes, attributes.obj).items():
            old = attributes.old
            if old is None or self._nodes(attributes, old).get(where) != node:
                self._check(attributes, where, node)
        return []

    def _nodes(self, attributes: Attributes, obj: Object) -> dict[str, str]:
        kind, found = attributes.served.kind, {}
        for task, template in pod_templates(kind.group, kind.kind, obj):
            node = (template.get("spec") or {}).get("nodeName")
            if node:
                name = "template.spec.nodeName"
                found[f'{name} of task "{task}"' if task else name] = str(node)
        return found

    def _check(self, attributes: Attributes, where: str, node: str) -> None:
        user, namespace = attributes.options.user, attributes.namespace
        target = RequestInfo("create", "", "v1", namespace, "pods", "", "binding")
        if not self._authorizer.allows(user, target)[0]:
            raise attributes.forbid(
                f'{where} is "{node}": user "{user.name}" cannot create resource "pods/binding" in '
                f'the namespace "{namespace}". Leave the node to the scheduler, or select it by '
                "nodeSelector"
            )
