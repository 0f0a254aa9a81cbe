"""Patches as functions from an object's newest version to its next.

JSON patch, merge patch and strategic merge patch change the object; apply declares the intent of
one field manager, may create the object, and may conflict with other managers.
"""

from __future__ import annotations

import msgspec

from hekla.apiserver import errors
from hekla.apiserver.endpoints import bodies
from hekla.apiserver.endpoints.messages import Request
from hekla.apiserver.registry.managed_fields import ignored_fields
from hekla.apiserver.registry.options import Options
from hekla.apiserver.registry.resources import Change
from hekla.apiserver.schema.kinds import Served
from hekla.units import apply, patches
from hekla.units.objects import Object


def media_type(request: Request) -> str:
    return request.content_type.partition(";")[0].strip()


def patch_change(
    served: Served, request: Request, options: Options, now: str
) -> tuple[Change, bool]:
    """Return the patch function, and whether it is an apply (which may create)."""
    media = media_type(request)
    if request.query.get("force") and media != bodies.APPLY:
        raise errors.bad_request("force is only allowed for apply patches")
    if media == bodies.APPLY:
        return _apply_change(served, request, options, now), True
    patch = bodies.read_patch(request.body, media)
    shape = served.shape

    def change(obj: Object) -> Object:
        try:
            match media:
                case bodies.JSON_PATCH:
                    return patches.json_patch(obj, patch)  # type: ignore[no-any-return]
                case bodies.STRATEGIC:
                    return patches.strategic_merge_patch(obj, patch, shape, share=True)
                case _:
                    return patches.merge_patch(obj, patch, share=True)  # type: ignore[no-any-return]
        except patches.PatchError as error:
            raise errors.StatusError(422, "Invalid", str(error), {}) from error

    return change, False


def _apply_change(served: Served, request: Request, options: Options, now: str) -> Change:
    if not request.query.get("fieldManager"):
        raise errors.invalid_options(
            "PatchOptions",
            "fieldManager",
            "FieldValueRequired",
            "Required value: is required for apply patch",
        )
    applied = bodies.read(request.body, bodies.YAML, options)
    if options.duplicates and options.field_validation == "Strict":
        bodies.refuse_duplicates(request.body)
    force = request.query.flag("force")
    options.is_apply = True
    metadata = applied.get("metadata") if isinstance(applied, dict) else None
    if metadata is not None and not isinstance(metadata, dict):
        raise errors.bad_request("metadata must be an object")
    if metadata and metadata.get("managedFields"):
        raise errors.bad_request("metadata.managedFields must be nil")
    if isinstance(applied, dict):
        if not applied.get("kind") or not applied.get("apiVersion"):
            given = f"{applied.get('apiVersion', '')}, Kind={applied.get('kind', '')}"
            raise errors.bad_request(f"invalid object type: {given}")
        _check_declared(served, applied)

    def change(live: Object) -> Object:
        try:
            return apply.apply(
                live or None,
                applied,
                manager=options.field_manager,
                force=force,
                shape=served.shape,
                api_version=served.kind.api_version,
                now=now,
                subresource=options.subresource,
                ignored=ignored_fields(served, options.subresource),
            )
        except apply.ApplyConflict as conflict:
            raise _apply_conflict(conflict) from conflict
        except apply.ApplyError as error:
            raise errors.bad_request(f"the apply patch cannot be used: {error}") from error

    return change


def _check_declared(served: Served, applied: Object) -> None:
    """Refuse an apply with fields unknown to the schema, as upstream."""
    copied: Object = msgspec.json.decode(msgspec.json.encode(applied))
    copied.setdefault("metadata", {})
    unknown = served.structural_schema.check(copied).unknown
    if not unknown:
        return
    messages = [f"{path}: field not declared in schema" for path in unknown]
    listed = messages[0] if len(messages) == 1 else "\n  ".join(["errors:", *messages])
    metadata = applied.get("metadata") or {}
    kind = served.kind
    raise errors.StatusError(
        500,
        "",
        f"failed to create typed patch object ({metadata.get('namespace', '')}/"
        f"{metadata.get('name', '')}; {kind.api_version}, Kind={kind.kind}): {listed}",
    )


def _apply_conflict(conflict: apply.ApplyConflict) -> errors.StatusError:
    causes = []
    for manager, subresource, api_version, path in conflict.conflicts:
        by = f'conflict with "{manager}"'
        if subresource:
            by += f' with subresource "{subresource}"'
        causes.append(
            {
                "reason": "FieldManagerConflict",
                "message": f"{by} using {api_version}",
                "field": path,
            }
        )
    noun = "conflict" if len(causes) == 1 else "conflicts"
    listed = ", ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
    message = f"Apply failed with {len(causes)} {noun}: {listed}"
    return errors.StatusError(409, "Conflict", message, {"causes": causes})
