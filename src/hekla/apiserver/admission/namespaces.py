"""Nothing is created in a namespace that does not exist or is going away."""

from __future__ import annotations

from hekla.apiserver import errors
from hekla.apiserver.admission.chain import Also, Attempt, Controller

IMMORTAL = frozenset({"default", "kube-system", "kube-public"})


class NamespaceLifecycle(Controller):
    def mutate(self, attempt: Attempt) -> None:
        if attempt.verb != "create" or not attempt.served.kind.namespaced:
            return
        entry = self.store.head("namespaces", attempt.namespace)
        if entry is None:
            raise errors.not_found("", "namespaces", attempt.namespace)
        if entry.is_leaving:
            error = attempt.forbid(
                f"unable to create new content in namespace {attempt.namespace} because it is "
                "being terminated"
            )
            assert error.details is not None
            error.details["causes"] = [
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {attempt.namespace} is being terminated",
                    "field": "metadata.namespace",
                }
            ]
            raise error

    def validate(self, attempt: Attempt) -> list[Also]:
        if attempt.verb == "delete" and attempt.served.storage == "namespaces":
            name = attempt.obj["metadata"]["name"]
            if name in IMMORTAL:
                raise attempt.forbid("this namespace may not be deleted")
        return []
