"""ServiceAccount: set a pod's account to `default` if it has none, and check that it exists."""

from __future__ import annotations

from hekla.apiserver.admission.plugin import AdmissionPlugin, Attributes


class ServiceAccounts(AdmissionPlugin):
    def mutate(self, attributes: Attributes) -> None:
        if not attributes.creates("pods"):
            return
        spec = attributes.obj["spec"]
        name = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        # `default` is created shortly after its namespace. kube-apiserver refuses pods in between;
        # hekla accepts them.
        if name != "default" and not self.store.head(
            "serviceaccounts", f"{attributes.namespace}/{name}"
        ):
            raise attributes.forbid(
                f"error looking up service account {attributes.namespace}/{name}: serviceaccount "
                f'"{name}" not found'
            )
