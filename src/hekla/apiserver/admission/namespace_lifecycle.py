"""NamespaceLifecycle: no creation in a namespace that does not exist or is terminating."""

from __future__ import annotations

from hekla.apiserver import errors
from hekla.apiserver.admission.plugin import AdmissionPlugin, Attributes, RelatedWrite

IMMORTAL = frozenset({"default", "kube-system", "kube-public"})


class NamespaceLifecycle(AdmissionPlugin):
    def mutate(self, attributes: Attributes) -> None:
        if attributes.verb != "create" or not attributes.served.kind.namespaced:
            return
        entry = self.store.head("namespaces", attributes.namespace)
        if entry is None:
            raise errors.not_found("", "namespaces", attributes.namespace)
        if entry.is_terminating:
            error = attributes.forbid(
                f"unable to create new content in namespace {attributes.namespace} because it is "
                "being terminated"
            )
            assert error.details is not None
            error.details["causes"] = [
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {attributes.namespace} is being terminated",
                    "field": "metadata.namespace",
                }
            ]
            raise error

    def validate(self, attributes: Attributes) -> list[RelatedWrite]:
        if attributes.verb == "delete" and attributes.served.storage == "namespaces":
            name = attributes.obj["metadata"]["name"]
            if name in IMMORTAL:
                raise attributes.forbid("this namespace may not be deleted")
        return []
