"""The rules of the house that need to see more than the object itself.

Each plugin is a class with `mutate` and `validate`; the chain calls them in order. They run in
the server's own process: nothing leaves the event loop between a decision and the staged write, so
a quota cannot be overrun by two requests at once.

Webhooks and policies that users configured are asked besides, by `call_mutating` and
`call_validating`. These wait, and the world moves on meanwhile: whoever calls them validates again
after, and stages on the version that was read before, which the store refuses if it is stale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hekla.apiserver.admission.escalation import Escalation
from hekla.apiserver.admission.expression_checks import ExpressionChecks
from hekla.apiserver.admission.limit_ranges import LimitRanges
from hekla.apiserver.admission.matching import AdmissionRequest
from hekla.apiserver.admission.namespace_lifecycle import NamespaceLifecycle
from hekla.apiserver.admission.plugin import AdmissionPlugin, Attributes, RelatedWrite
from hekla.apiserver.admission.policies import Policies
from hekla.apiserver.admission.priority import Priority
from hekla.apiserver.admission.resource_quota import ResourceQuotas
from hekla.apiserver.admission.runtime_classes import RuntimeClasses
from hekla.apiserver.admission.service_accounts import ServiceAccounts
from hekla.apiserver.admission.volcano import Volcano
from hekla.apiserver.admission.webhooks import Webhooks
from hekla.units.objects import Object

if TYPE_CHECKING:
    from hekla.apiserver.registry.kinds import Served
    from hekla.apiserver.registry.options import Options
    from hekla.apiserver.registry.resources import Resources

# Of a new object, what the server sets after mutating hooks have been asked, as upstream.
_NOT_YET = ("uid", "creationTimestamp", "generation")


class AdmissionChain:
    """The chain, in the order Kubernetes runs its own: quotas last, when all else is settled."""

    def __init__(self, resources: Resources) -> None:
        self.plugins: list[AdmissionPlugin] = [
            NamespaceLifecycle(resources),
            LimitRanges(resources),
            ServiceAccounts(resources),
            Priority(resources),
            RuntimeClasses(resources),
            Escalation(resources),
            ExpressionChecks(resources),
            Volcano(resources),
            ResourceQuotas(resources),
        ]
        self._resources = resources
        self.webhooks = Webhooks(resources)
        self.policies = Policies(resources)

    def follow(self) -> None:
        """Ask what is configured, from now on: not while the server populates its own store."""
        self.webhooks.follow()
        self.policies.follow()

    async def mutate(self, attributes: Attributes) -> None:
        for plugin in self.plugins:
            plugin.mutate(attributes)

    def validate(self, attributes: Attributes) -> list[RelatedWrite]:
        also: list[RelatedWrite] = []
        for plugin in self.plugins:
            also += plugin.validate(attributes)
        return also

    # What users configured

    def needs_review(self, attributes: Attributes) -> bool:
        """Whether anybody outside this chain has a say in it."""
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
            _how(verb, attributes.options),
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
        """A write to a subresource that exchanges another kind: the object as hooks leave it."""
        if not self.covers(operation, served, subresource):
            return obj
        how = {} if operation == "CONNECT" else _how(operation.lower(), options)
        review = AdmissionRequest(
            operation, served, namespace, name, obj, old, options, subresource, how
        )
        await self.webhooks.mutate(review)
        await self.policies.validate(review)
        await self.webhooks.validate(review)
        return obj


def _how(verb: str, options: Options) -> Object:
    """The options object of a request, as hooks are shown it."""
    how: Object = {"kind": f"{verb.capitalize()}Options", "apiVersion": "meta.k8s.io/v1"}
    if options.dry_run:
        how["dryRun"] = ["All"]
    if verb != "delete":
        how["fieldManager"] = options.manager
        how["fieldValidation"] = options.field_validation
    return how
