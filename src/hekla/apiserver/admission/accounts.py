"""A pod runs as a service account: `default` unless it names one, which must exist."""

from __future__ import annotations

from hekla.apiserver.admission.chain import Attempt, Controller


class ServiceAccounts(Controller):
    def mutate(self, attempt: Attempt) -> None:
        if not attempt.creates("pods"):
            return
        spec = attempt.obj["spec"]
        name = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        # `default` is made with its namespace, a moment later: upstream refuses pods in between,
        # to everybody's surprise; there is nothing to be won by that.
        if name != "default" and not self.store.head(
            "serviceaccounts", f"{attempt.namespace}/{name}"
        ):
            raise attempt.forbid(
                f"error looking up service account {attempt.namespace}/{name}: serviceaccount "
                f'"{name}" not found'
            )
