"""A pod runs as a service account: `default` unless it names one, which must exist."""

from __future__ import annotations

from hekla.apiserver.admission.plugin import AdmissionPlugin, Attributes


class ServiceAccounts(AdmissionPlugin):
    def mutate(self, attributes: Attributes) -> None:
        if not attributes.creates("pods"):
            return
        spec = attributes.obj["spec"]
        name = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        # `default` is made with its namespace, a moment later: upstream refuses pods in between,
        # to everybody's surprise; there is nothing to be won by that.
        if name != "default" and not self.store.head(
            "serviceaccounts", f"{attributes.namespace}/{name}"
        ):
            raise attributes.forbid(
                f"error looking up service account {attributes.namespace}/{name}: serviceaccount "
                f'"{name}" not found'
            )
