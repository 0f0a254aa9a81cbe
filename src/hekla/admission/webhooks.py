"""The webhook configurations, as data.

Scoped to Volcano's kinds. Pods are not included: only the submission of jobs depends on this
service.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

PREFIX = "hekla-admission"
TIMEOUT_S = 10
NOT_ON_ITS_WAY_OUT: Json = {
    "name": "not-on-its-way-out",
    "expression": "object == null || !has(object.metadata.deletionTimestamp)",
}
"""Finalizers can be removed, and namespaces deleted, while this service is down."""


@dataclass(frozen=True, slots=True)
class Hook:
    """One endpoint and the requests that it handles."""

    resource: str
    action: str  # mutate or validate
    group: str
    version: str
    operations: tuple[str, ...]

    @property
    def path(self) -> str:
        return f"/{self.resource}/{self.action}"

    @property
    def webhook_name(self) -> str:
        """Volcano's name: mutatejob.volcano.sh."""
        return f"{self.action}{self.resource.removesuffix('s')}.volcano.sh"


_BATCH = ("batch.volcano.sh", "v1alpha1")
_SCHEDULING = ("scheduling.volcano.sh", "v1beta1")
_FLOW = ("flow.volcano.sh", "v1alpha1")
_WRITES = ("CREATE", "UPDATE")

HOOKS: tuple[Hook, ...] = (
    # On update, too: `kubectl apply` replaces the whole list of tasks and removes defaulted fields;
    # without this, validation would see the tasks change.
    Hook("jobs", "mutate", *_BATCH, _WRITES),
    Hook("jobs", "validate", *_BATCH, _WRITES),
    Hook("cronjobs", "validate", *_BATCH, _WRITES),
    Hook("queues", "mutate", *_SCHEDULING, ("CREATE",)),
    Hook("queues", "validate", *_SCHEDULING, (*_WRITES, "DELETE")),
    Hook("podgroups", "mutate", *_SCHEDULING, ("CREATE",)),
    Hook("podgroups", "validate", *_SCHEDULING, ("CREATE",)),
    Hook("jobflows", "validate", *_FLOW, _WRITES),
    Hook("jobtemplates", "validate", *_FLOW, _WRITES),
    Hook("hypernodes", "validate", "topology.volcano.sh", "v1alpha1", _WRITES),
)


@dataclass(frozen=True, slots=True)
class WebhookAddress:
    """The service's address for the API server: a Service or a URL."""

    namespace: str = ""
    service: str = ""
    port: int = 443
    url: str = ""

    def client_config(self, path: str, ca_pem: bytes) -> Json:
        bundle = base64.b64encode(ca_pem).decode()
        if self.url:
            return {"url": self.url + path, "caBundle": bundle}
        service = {
            "namespace": self.namespace,
            "name": self.service,
            "path": path,
            "port": self.port,
        }
        return {"service": service, "caBundle": bundle}

    @property
    def names(self) -> tuple[str, ...]:
        """Host names of the certificate."""
        if self.url:
            return (self.url.split("://", 1)[1].rsplit(":", 1)[0].strip("[]"),)
        return (f"{self.service}.{self.namespace}.svc", f"{self.service}.{self.namespace}")


def change_of_address(body: Json) -> Json:
    """Return a strategic patch that gives every webhook the address in `body` and no other.

    The url may have one field manager and the service another: applied, both would stay, and the
    server refuses that.
    """
    return {
        "webhooks": [
            {
                "name": webhook["name"],
                "clientConfig": {"url": None, "service": None, **webhook["clientConfig"]},
            }
            for webhook in body["webhooks"]
        ]
    }


def configurations(address: WebhookAddress, ca_pem: bytes) -> list[Json]:
    """Return all webhook configurations, one object per hook, as Volcano's."""
    made = []
    for hook in HOOKS:
        mutates = hook.action == "mutate"
        webhook: Json = {
            "name": hook.webhook_name,
            "admissionReviewVersions": ["v1"],
            "clientConfig": address.client_config(hook.path, ca_pem),
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": TIMEOUT_S,
            "matchConditions": [NOT_ON_ITS_WAY_OUT],
            "rules": [
                {
                    "apiGroups": [hook.group],
                    "apiVersions": [hook.version],
                    "resources": [hook.resource],
                    "operations": list(hook.operations),
                    "scope": "*",
                }
            ],
        }
        if mutates:
            webhook["reinvocationPolicy"] = "Never"
        kind = "MutatingWebhookConfiguration" if mutates else "ValidatingWebhookConfiguration"
        made.append(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": f"{PREFIX}-{hook.resource}-{hook.action}"},
                "webhooks": [webhook],
            }
        )
    return made
