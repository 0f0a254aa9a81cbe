"""What a PATCH stands for: a function from the newest version of an object to its next.

JSON patch, merge patch and strategic merge patch change what is there; apply states what one
manager wants, may create the object, and may be refused because others own what it would change.
"""

from __future__ import annotations

from hekla.apiserver import bodies, errors
from hekla.apiserver.exchange import Request
from hekla.apiserver.ownership import ignored_fields
from hekla.apiserver.registry import Served
from hekla.apiserver.resources import Change, Object, Options
from hekla.units import apply, patches


def patch_change(
    served: Served, request: Request, options: Options, now: str
) -> tuple[Change, bool]:
    """The function a patch stands for, and whether it is an apply (which may create)."""
    media = request.content_type.partition(";")[0].strip()
    if request.query.get("force") and media != bodies.APPLY:
        raise errors.bad_request("force is only allowed for apply patches")
    if media == bodies.APPLY:
        return _apply_change(served, request, options, now), True
    patch = bodies.read_patch(request.body, media, custom=served.custom)
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
            kind = served.kind
            causes = [{"reason": "FieldValueInvalid", "message": str(error), "field": "patch"}]
            raise errors.invalid(kind.group, kind.kind, request.target.name, causes) from error

    return change, False


def _apply_change(served: Served, request: Request, options: Options, now: str) -> Change:
    if not request.query.get("fieldManager"):
        raise errors.bad_request("fieldManager is required for apply patches")
    applied = bodies.read(request.body, bodies.YAML, options)
    force = request.query.flag("force")
    options.applies = True
    if isinstance(applied, dict) and (applied.get("metadata") or {}).get("managedFields"):
        raise errors.bad_request("metadata.managedFields must be nil in an apply patch")

    def change(live: Object) -> Object:
        try:
            return apply.apply(
                live or None,
                applied,
                manager=options.manager,
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
