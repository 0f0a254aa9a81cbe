"""Manifests of builders, and the checks before they are sent."""

from __future__ import annotations

from hekla.kube.errors import Invalid
from hekla.sdk import validation
from hekla.sdk.builders import Job, Queue, Task
from hekla.sdk.unknown_fields import unknown_fields
from hekla.units.objects import Object

A_QUEUE = 'a Queue, such as create_queue(Queue("ml")), or a manifest (a dict)'
_A_JOB = "a Job, a manifest (a dict), or a function and its arguments, such as submit(pow, 2, 10)"


def as_manifest(what: Job | Queue | Object, *, wanted: str = _A_JOB) -> Object:
    """Return the manifest of a builder; TypeError says what to pass instead of another object."""
    if isinstance(what, dict):
        return what
    if isinstance(what, Task):
        raise TypeError(f'a Task is a part of a job: submit(Job("{what.name or "NAME"}", [task]))')
    if not hasattr(what, "manifest"):
        raise TypeError(f"{what!r:.100} is a {type(what).__name__}: pass {wanted}")
    return what.manifest()


def raise_if_unknown(manifest: Object) -> None:
    """Raise Invalid if the manifest has fields that servers would drop without an error."""
    messages = list(unknown_fields(manifest))
    if messages:
        kind, name = manifest.get("kind", ""), (manifest.get("metadata") or {}).get("name", "")
        causes = [
            {"field": message.partition(":")[0], "message": message, "reason": "FieldValueInvalid"}
            for message in messages
        ]
        text = f'{kind} "{name}" has unknown fields: {"; ".join(messages)}'
        raise Invalid(422, "Invalid", text, details={"causes": causes})


def raise_if_invalid(manifest: Object, view: validation.ClusterView) -> None:
    """Raise Invalid with all errors if validation rejects the manifest or a field is unknown."""
    raise_if_unknown(manifest)
    errors = validation.errors(manifest, view)
    if errors:
        kind, name = manifest.get("kind", ""), manifest.get("metadata", {}).get("name", "")
        text = "; ".join(str(error) for error in errors)
        causes = [
            {"field": error.field, "message": error.body, "reason": error.type} for error in errors
        ]
        raise Invalid(
            422, "Invalid", f'{kind} "{name}" is invalid: {text}', details={"causes": causes}
        )
