"""The admission chain: built-in plugins, then configured webhooks and policies.

Each plugin has `mutate` and `validate`; the chain calls them in order. Plugins never yield to the
event loop between a decision and the staged write, so two requests cannot exceed a quota together.

`call_mutating` and `call_validating` call configured webhooks and policies.

Note: these await. After them, run `validate` again and stage on the version that was read before;
the store refuses the write if that version is stale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hekla.apiserver.admission.config import AdmissionConfig
from hekla.apiserver.admission.default_tolerations import DefaultTolerations
from hekla.apiserver.admission.escalation import Escalation
from hekla.apiserver.admission.expression_checks import ExpressionChecks
from hekla.apiserver.admission.limit_ranges import LimitRanges
from hekla.apiserver.admission.matching import AdmissionRequest
from hekla.apiserver.admission.namespace_lifecycle import NamespaceLifecycle
from hekla.apiserver.admission.node_names import NodeNames
from hekla.apiserver.admission.plugin import AdmissionPlugin, Attributes, RelatedWrite
from hekla.apiserver.admission.pod_security import PodSecurity
from hekla.apiserver.admission.policies import Policies
from hekla.apiserver.admission.priority import Priority
from hekla.apiserver.admission.queue_access import QueueAccess
from hekla.apiserver.admission.resource_quota import ResourceQuotas
from hekla.apiserver.admission.runtime_classes import RuntimeClasses
from hekla.apiserver.admission.scheduler_configuration import SchedulerConfiguration
from hekla.apiserver.admission.service_accounts import ServiceAccounts
from hekla.apiserver.admission.volcano import Volcano
from hekla.apiserver.admission.webhooks import Webhooks
from hekla.apiserver.auth.rbac import Authorizer
from hekla.units.objects import Object

if TYPE_CHECKING:
    from hekla.apiserver.registry.options import Options
    from hekla.apiserver.registry.resources import Resources
    from hekla.apiserver.schema.kinds import Served

# Fields of a new object that are set after mutating webhooks, as in kube-apiserver.
_NOT_YET = ("uid", "creationTimestamp", "generation")


class AdmissionChain:
    """Runs plugins in the order of kube-apiserver; quotas come last."""

    def __init__(self, resources: Resources, config: AdmissionConfig) -> None:
        self.authorizer = Authorizer(resources.store)
        self.plugins: list[AdmissionPlugin] = [
            NamespaceLifecycle(resources),
            LimitRanges(resources),
            ServiceAccounts(resources),
            Priority(resources),
            DefaultTolerations(resources),
            RuntimeClasses(resources),
            PodSecurity(resources, config.pod_security_default),
            NodeNames(resources, self.authorizer),
            Escalation(resources, self.authorizer),
            ExpressionChecks(resources),
            Volcano(resources, config.max_pods_per_job),
            SchedulerConfiguration(resources, config.scheduler_config_problem),
            QueueAccess(resources, self.authorizer, is_checked=config.queue_access),
            ResourceQuotas(resources),
        ]
        self._resources = resources
        self.webhooks = Webhooks(resources)
        self.policies = Policies(resources)

    def subscribe(self) -> None:
        """Start to call configured webhooks and policies. Not called during bootstrap."""
        self.webhooks.subscribe()
        self.policies.subscribe()

    async def mutate(self, attributes: Attributes) -> None:
        for plugin in self.plugins:
            plugin.mutate(attributes)

    def validate(self, attributes: Attributes) -> list[RelatedWrite]:
        also: list[RelatedWrite] = []
        for plugin in self.plugins:
            also += plugin.validate(attributes)
        return also

    # Webhooks and policies

    def needs_review(self, attributes: Attributes) -> bool:
        """Return whether a webhook or a policy covers this write."""
        options = attributes.options
        if options.is_reviewed:
            return False
        return self.covers(attributes.verb.upper(), attributes.served, options.subresource)

    def covers(self, operation: str, served: Served, subresource: str) -> bool:
        return self.webhooks.covers(operation, served, subresource) or self.policies.covers(
            operation, served, subresource
        )

    async def call_mutating(self, attributes: Attributes) -> bool:
        """Call mutating webhooks; return whether they changed `attributes.obj`."""
        review = await self._review(attributes)
        hidden = {}
        if attributes.verb == "create" and review.obj is not None:
            metadata = review.obj["metadata"]
            names = (*_NOT_YET, "name") if attributes.is_name_generated else _NOT_YET
            hidden = {name: metadata.pop(name) for name in names if name in metadata}
            if attributes.is_name_generated:
                review.name = ""
        changed = await self.webhooks.mutate(review)
        if review.obj is not None:
            metadata = review.obj.setdefault("metadata", {})
            if isinstance(metadata, dict):
                metadata.update(hidden)
            if changed:
                attributes.obj.clear()
                attributes.obj.update(review.obj)
        return changed

    async def call_validating(self, attributes: Attributes) -> None:
        review = await self._review(attributes)
        await self.policies.validate(review)
        await self.webhooks.validate(review)

    async def _review(self, attributes: Attributes) -> AdmissionRequest:
        served, verb = attributes.served, attributes.verb
        shown = self._resources.in_version
        return AdmissionRequest(
            verb.upper(),
            served,
            attributes.namespace,
            attributes.obj["metadata"].get("name", ""),
            None if verb == "delete" else await shown(served, attributes.obj),
            None if attributes.old is None else await shown(served, attributes.old),
            attributes.options,
            attributes.options.subresource,
            _options_object(verb, attributes.options),
        )

    async def review_subresource(
        self,
        operation: str,
        served: Served,
        name: str,
        namespace: str,
        subresource: str,
        obj: Object,
        options: Options,
        old: Object | None = None,
    ) -> Object:
        """Review a write to a subresource of a different kind; return the resulting object."""
        if not self.covers(operation, served, subresource):
            return obj
        operation_options = (
            {} if operation == "CONNECT" else _options_object(operation.lower(), options)
        )
        review = AdmissionRequest(
            operation, served, namespace, name, obj, old, options, subresource, operation_options
        )
        await self.webhooks.mutate(review)
        await self.policies.validate(review)
        await self.webhooks.validate(review)
        return obj


def _options_object(verb: str, options: Options) -> Object:
    """Return the options object of a request as webhooks see it."""
    operation_options: Object = {
        "kind": f"{verb.capitalize()}Options",
        "apiVersion": "meta.k8s.io/v1",
    }
    if options.dry_run:
        operation_options["dryRun"] = ["All"]
    if verb != "delete":
        operation_options["fieldManager"] = options.field_manager
        operation_options["fieldValidation"] = options.field_validation
    return operation_options
