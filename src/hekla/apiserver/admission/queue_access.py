"""QueueAccess: the right to submit to a queue, the right to command it, and the submitting user.

To submit to a queue needs the verb `use` on it, if the server is configured so; Volcano has no such
right. A Command for a queue always needs the verb `update` on that queue. The server records the
user that submits a Job, CronJob, JobFlow, PodGroup or pod.

Note: controllers are members of `system:masters` here. What they create for a user was checked
where the user wrote it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from hekla.api import wellknown
from hekla.api.rules import causes
from hekla.api.rules.fields import FieldError, required
from hekla.api.volcano import access
from hekla.apiserver import errors
from hekla.apiserver.admission.plugin import AdmissionPlugin, Attributes, RelatedWrite
from hekla.apiserver.auth.authenticator import MASTERS
from hekla.apiserver.auth.rbac import Authorizer
from hekla.apiserver.request_info import RequestInfo
from hekla.units.objects import Object

if TYPE_CHECKING:
    from hekla.apiserver.registry.resources import Resources

QUEUES, JOBS = "scheduling.volcano.sh/queues", "batch.volcano.sh/jobs"
COMMANDS = "bus.volcano.sh/commands"


class QueueAccess(AdmissionPlugin):
    def __init__(self, resources: Resources, authorizer: Authorizer, *, is_checked: bool) -> None:
        super().__init__(resources)
        self._authorizer = authorizer
        self._is_checked = is_checked

    def mutate(self, attributes: Attributes) -> None:
        if attributes.verb == "delete" or attributes.options.subresource:
            return
        if attributes.served.storage == COMMANDS:
            self._complete_command(attributes)
        kind, user = attributes.served.kind, attributes.options.user
        access.record_submitter(
            kind.group,
            kind.kind,
            attributes.obj,
            attributes.old,
            user.name,
            is_trusted=MASTERS in user.groups,
        )

    def validate(self, attributes: Attributes) -> list[RelatedWrite]:
        if attributes.verb == "delete" or attributes.options.subresource:
            return []
        if attributes.served.storage == COMMANDS:
            self._check_command(attributes)
        elif self._is_checked and MASTERS not in attributes.options.user.groups:
            self._check_queues(attributes)
        return []

    def _may(self, attributes: Attributes, verb: str, queue: str) -> bool:
        target = RequestInfo(verb, access.GROUP, "v1beta1", "", "queues", queue)
        return self._authorizer.allows(attributes.options.user, target)[0]

    def _complete_command(self, attributes: Attributes) -> None:
        """Fill in the UID of a target that is given by name: controllers ignore others."""
        target = attributes.obj.get("target") or {}
        if attributes.verb != "create" or target.get("uid"):
            return
        name = str(target.get("name", ""))
        is_job = target.get("kind") == "Job"
        table, key = (JOBS, f"{attributes.namespace}/{name}") if is_job else (QUEUES, name)
        entry = self.store.head(table, key)
        if entry is not None:
            target["uid"] = msgspec.json.decode(entry.body)["metadata"]["uid"]

    def _check_command(self, attributes: Attributes) -> None:
        command = attributes.obj
        target = command.get("target") or {}
        if not target.get("uid"):
            self._refuse(attributes, required("target.uid", f"no such {target.get('kind')}"))
        queue = str(target.get("name", ""))
        if target.get("kind") == "Queue" and not self._may(attributes, "update", queue):
            raise attributes.forbid(
                f'target is the queue "{queue}": user "{attributes.options.user.name}" cannot '
                f'update resource "queues" in API group "{access.GROUP}", which a command for a '
                "queue needs"
            )

    def _check_queues(self, attributes: Attributes) -> None:
        kind = attributes.served.kind
        old = attributes.old

        def queues(obj: Object) -> Iterator[tuple[str, str]]:
            return access.submitted_queues(
                kind.group,
                kind.kind,
                obj,
                default=lambda: self._default_queue(attributes.namespace),
                schedulers=wellknown.LOCAL_SCHEDULERS,
            )

        known = {queue for _, queue in queues(old)} if old else set()
        for field, queue in queues(attributes.obj):
            if queue not in known and not self._may(attributes, "use", queue):
                raise attributes.forbid(access.refusal(attributes.options.user.name, queue, field))

    def _default_queue(self, namespace: str) -> str:
        """Return the queue of pods that name none."""
        entry = self.store.head("namespaces", namespace)
        obj: Object = {} if entry is None else msgspec.json.decode(entry.body)
        annotations = (obj.get("metadata") or {}).get("annotations") or {}
        return annotations.get(wellknown.POD_QUEUE_NAME) or wellknown.DEFAULT_QUEUE

    def _refuse(self, attributes: Attributes, error: FieldError) -> None:
        kind, name = attributes.served.kind, attributes.obj["metadata"].get("name", "")
        raise errors.invalid(kind.group, kind.kind, name, causes([error]))
