"""API requests as data, built by pure functions; both clients send them.

Note: `DELETE …/pods/` with an empty name deletes all pods, and a name such as `../secrets/x` leads
to another kind. Each path segment is checked and quoted here; no other module builds paths.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote, urlencode

import msgspec

from hekla.kube.resources import EVENTS, PODS, SERVICE_ACCOUNTS, Resource

Propagation = Literal["Foreground", "Background", "Orphan"]
PatchKind = Literal["merge", "json", "strategic", "apply"]
Body = Any
"""A JSON object that msgspec can encode (dict, Struct), or encoded `bytes`."""

Query = Sequence[tuple[str, str]]

_PATCH_TYPES: Mapping[str, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",  # JSON is YAML; servers before 1.32 accept only this
}
_PLAIN = re.compile(r"[a-z0-9.-]+").fullmatch
_IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE"})


class Call(msgspec.Struct, frozen=True):
    """One request. `str(call)` is its name in errors and logs, without query and body."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    content_type: str = "application/json"
    accept: str = "application/json"
    idempotent: bool = False
    """Whether the request is idempotent and may be sent again."""
    retry_throttled: bool = True
    """Whether 429 means "retry later". For an eviction it means that a budget forbids it."""

    @property
    def target(self) -> str:
        """Path and query as sent."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def __repr__(self) -> str:
        return f"<Call {self}>"  # never the body: it may be a Secret


class Identity(msgspec.Struct, frozen=True):
    """The metadata that identifies an object and its version."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""


class _Identified(msgspec.Struct):
    metadata: Identity = Identity()


class _Typed(msgspec.Struct):
    apiVersion: str | None = None
    kind: str | None = None


_IDENTIFIED = msgspec.json.Decoder(_Identified)
_TYPED = msgspec.json.Decoder(_Typed)


def identity_of(encoded: bytes | msgspec.Raw) -> Identity:
    """Decode name, namespace, uid and version of an encoded object."""
    return _IDENTIFIED.decode(encoded).metadata


def encode(body: Body) -> bytes:
    """Return the JSON bytes of a body."""
    if isinstance(body, bytes):
        return body
    return msgspec.json.encode(body)


def _typed(resource: Resource[Any], body: Body) -> bytes:
    """Return an object's JSON with apiVersion and kind.

    API servers infer them for built-in kinds, and refuse custom objects without them.
    """
    encoded = encode(body).strip()
    typed = _TYPED.decode(encoded)
    wanted = {"apiVersion": resource.api_version, "kind": resource.kind}
    absent = {key: value for key, value in wanted.items() if value and not getattr(typed, key)}
    if not absent:
        return encoded
    rest = encoded[1:].lstrip()
    return encode(absent)[:-1] + (b"" if rest == b"}" else b",") + rest


def path_of(
    resource: Resource[Any], namespace: str | None = None, name: str | None = None, sub: str = ""
) -> str:
    """Return the path of a collection, an object or a subresource.

    A namespace is ignored for cluster-scoped kinds, for the sake of generic code.
    """
    path = resource.root
    if resource.namespaced and namespace is not None:
        path += f"/namespaces/{_segment('namespace', namespace)}"
    path += f"/{resource.plural}"
    if name is not None:
        if resource.namespaced and namespace is None:
            raise ValueError(f"{resource} {name!r}: no namespace was given")
        path += f"/{_segment('name', name)}"
    if sub:
        # Some are nested (`pods/x/proxy/...`), so slashes are kept; dot segments are not.
        path += "/" + "/".join(_segment("subresource", part) for part in sub.split("/"))
    return path


def _segment(what: str, text: str) -> str:
    if not text or text in (".", "..") or "/" in text:
        raise ValueError(f"{text!r} cannot be a {what}")
    # Object names need no escapes; this check costs a fifth of quoting.
    return text if _PLAIN(text) else quote(text, safe=":~@!$&'()*+,;=")


def read(
    resource: Resource[Any], name: str, *, namespace: str | None = None, sub: str = ""
) -> Call:
    """Read an object or a subresource."""
    return Call("GET", path_of(resource, namespace, name, sub), idempotent=True)


def read_list(
    resource: Resource[Any],
    *,
    namespace: str | None = None,
    label_selector: str = "",
    field_selector: str = "",
    limit: int = 0,
    continue_token: str = "",
    resource_version: str | None = None,
) -> Call:
    """Read one page of a list (all of it if `limit` is 0)."""
    query = _selectors(label_selector, field_selector)
    if limit:
        query.append(("limit", str(limit)))
    if continue_token:
        query.append(("continue", continue_token))
    elif resource_version is not None:
        # Servers refuse a version with a continue token, which contains one.
        query.append(("resourceVersion", resource_version))
    return Call("GET", path_of(resource, namespace), tuple(query), idempotent=True)


def watch(
    resource: Resource[Any],
    *,
    namespace: str | None = None,
    label_selector: str = "",
    field_selector: str = "",
    resource_version: str = "",
    timeout_s: float | None = None,
) -> Call:
    """Watch changes after `resource_version`, with bookmarks."""
    query = [("watch", "true"), ("allowWatchBookmarks", "true")]
    if resource_version:
        query.append(("resourceVersion", resource_version))
    if timeout_s is not None:
        query.append(("timeoutSeconds", str(max(1, int(timeout_s)))))
    query += _selectors(label_selector, field_selector)
    return Call("GET", path_of(resource, namespace), tuple(query), idempotent=True)


def create(
    resource: Resource[Any],
    body: Body,
    *,
    namespace: str | None = None,
    name: str | None = None,
    sub: str = "",
    dry_run: bool = False,
    field_manager: str | None = None,
) -> Call:
    """Create an object, or POST to a subresource of `name`."""
    return Call(
        "POST",
        path_of(resource, namespace, name, sub),
        _write_query(dry_run, field_manager),
        encode(body) if sub else _typed(resource, body),
    )


def replace(
    resource: Resource[Any],
    name: str,
    body: Body,
    *,
    namespace: str | None = None,
    sub: str = "",
    dry_run: bool = False,
    field_manager: str | None = None,
) -> Call:
    """Replace an object."""
    return Call(
        "PUT",
        path_of(resource, namespace, name, sub),
        _write_query(dry_run, field_manager),
        encode(body) if sub else _typed(resource, body),
        idempotent=True,
    )


def patch(
    resource: Resource[Any],
    name: str,
    body: Body,
    *,
    kind: PatchKind = "merge",
    namespace: str | None = None,
    sub: str = "",
    dry_run: bool = False,
    field_manager: str | None = None,
    force: bool = False,
) -> Call:
    """Patch an object. Only `apply` needs a field manager and may be forced."""
    if kind not in _PATCH_TYPES:
        raise ValueError(f"{kind!r} is not a kind of patch; use one of {', '.join(_PATCH_TYPES)}")
    if kind == "apply" and not field_manager:
        raise ValueError("an apply patch needs field_manager: the server tracks owners by it")
    if force and kind != "apply":
        raise ValueError(f"only an apply patch can be forced, and this is a {kind} patch")
    query = [*_write_query(dry_run, field_manager)]
    if force:
        query.append(("force", "true"))
    return Call(
        "PATCH",
        path_of(resource, namespace, name, sub),
        tuple(query),
        _typed(resource, body) if kind == "apply" and not sub else encode(body),
        content_type=_PATCH_TYPES[kind],
        # JSON Patch is not idempotent: it can append to a list twice.
        idempotent=kind != "json",
    )


def with_expected_version(body: Body, kind: PatchKind, version: str) -> Body:
    """Return a patch that applies only at that resourceVersion (409 otherwise)."""
    if kind == "json":
        # Not a "test" operation: it fails with 422, and a lost race should be 409.
        operation = {"op": "replace", "path": "/metadata/resourceVersion", "value": version}
        return [operation, *body]
    if not isinstance(body, Mapping):
        raise ValueError("expect needs the patch as a mapping, to put the resourceVersion into")
    metadata = {**body.get("metadata", {}), "resourceVersion": version}
    return {**body, "metadata": metadata}


def delete(
    resource: Resource[Any],
    name: str,
    *,
    namespace: str | None = None,
    grace_period_s: int | None = None,
    propagation: Propagation | None = None,
    uid: str | None = None,
    resource_version: str | None = None,
    dry_run: bool = False,
) -> Call:
    """Delete an object; with `uid` or `resource_version` as preconditions."""
    options = _delete_options(grace_period_s, propagation, uid, resource_version, dry_run)
    return Call("DELETE", path_of(resource, namespace, name), (), options, idempotent=True)


def delete_collection(
    resource: Resource[Any],
    *,
    namespace: str | None = None,
    label_selector: str = "",
    field_selector: str = "",
    grace_period_s: int | None = None,
    propagation: Propagation | None = None,
    dry_run: bool = False,
) -> Call:
    """Delete all matching objects of a namespace (or of a cluster-scoped kind)."""
    if resource.namespaced and namespace is None:
        raise ValueError(f"{resource}: a collection is deleted in one namespace; none was given")
    return Call(
        "DELETE",
        path_of(resource, namespace),
        tuple(_selectors(label_selector, field_selector)),
        _delete_options(grace_period_s, propagation, None, None, dry_run),
        idempotent=True,
    )


def bind(
    pod: str,
    node: str,
    *,
    namespace: str,
    uid: str | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Call:
    """Bind a pod to a node; `annotations` are set on the pod in the same request."""
    metadata: dict[str, Any] = {"name": pod, "namespace": namespace}
    if uid:
        metadata["uid"] = uid  # the server refuses if the name belongs to another pod
    if annotations:
        metadata["annotations"] = dict(annotations)
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    return Call("POST", path_of(PODS, namespace, pod, "binding"), (), encode(body))


def evict(
    pod: str,
    *,
    namespace: str,
    grace_period_s: int | None = None,
    uid: str | None = None,
    dry_run: bool = False,
) -> Call:
    """Delete a pod unless a disruption budget forbids it (429)."""
    body: dict[str, Any] = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
    }
    options: dict[str, Any] = {}
    if grace_period_s is not None:
        options["gracePeriodSeconds"] = grace_period_s
    if uid:
        options["preconditions"] = {"uid": uid}
    if dry_run:
        options["dryRun"] = ["All"]
    if options:
        body["deleteOptions"] = options
    path = path_of(PODS, namespace, pod, "eviction")
    return Call("POST", path, (), encode(body), retry_throttled=False)


def token(
    service_account: str,
    *,
    namespace: str,
    audiences: Sequence[str] = (),
    expiration_s: int | None = None,
) -> Call:
    """Request a token of a service account."""
    spec: dict[str, Any] = {"audiences": list(audiences)}
    if expiration_s is not None:
        spec["expirationSeconds"] = expiration_s
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    path = path_of(SERVICE_ACCOUNTS, namespace, service_account, "token")
    return Call("POST", path, (), encode(body))


def logs(
    pod: str,
    *,
    namespace: str,
    container: str | None = None,
    follow: bool = False,
    previous: bool = False,
    timestamps: bool = False,
    tail_lines: int | None = None,
    since_s: int | None = None,
    limit_bytes: int | None = None,
    run: int | None = None,
    uid: str = "",
    owner: str = "",
) -> Call:
    """Read a container's output; with `follow` until it ends.

    `run` is a restart count. hekla's server returns the output of that run; Kubernetes ignores it
    and returns the latest, or with `previous` the one before. With `uid`, hekla's server returns
    the output of that pod even if it was deleted; Kubernetes ignores it. With `owner`, the uid of a
    controller, hekla's server returns the output of its deleted pods of this name, whose runs `run`
    counts from 0.
    """
    query: list[tuple[str, str]] = []
    if container:
        query.append(("container", container))
    for flag, given in (("follow", follow), ("previous", previous), ("timestamps", timestamps)):
        if given:
            query.append((flag, "true"))
    numbers = (
        ("tailLines", tail_lines),
        ("sinceSeconds", since_s),
        ("limitBytes", limit_bytes),
        ("run", run),
    )
    query += [(key, str(number)) for key, number in numbers if number is not None]
    if uid:
        query.append(("uid", uid))
    if owner:
        query.append(("owner", owner))
    path = path_of(PODS, namespace, pod, "log")
    return Call("GET", path, tuple(query), accept="*/*", idempotent=True)


def event(namespace: str, body: Body) -> Call:
    """Create a core/v1 Event."""
    return Call("POST", path_of(EVENTS, namespace), (), encode(body))


def other(
    method: str, path: str, *, query: Query = (), body: Body | None = None, accept: str = ""
) -> Call:
    """A request outside the resource paths: `/version`, `/openapi/v3`, `/readyz`."""
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is not a path on the API server; it starts with '/'")
    return Call(
        method,
        quote(path, safe="/:~@!$&'()*+,;=%"),
        tuple(query),
        None if body is None else encode(body),
        accept=accept or "application/json",
        idempotent=method in _IDEMPOTENT,
    )


def _selectors(label_selector: str, field_selector: str) -> list[tuple[str, str]]:
    query = []
    if label_selector:
        query.append(("labelSelector", label_selector))
    if field_selector:
        query.append(("fieldSelector", field_selector))
    return query


def _write_query(dry_run: bool, field_manager: str | None) -> tuple[tuple[str, str], ...]:
    query: tuple[tuple[str, str], ...] = (("dryRun", "All"),) if dry_run else ()
    return (*query, ("fieldManager", field_manager)) if field_manager else query


def _delete_options(
    grace_period_s: int | None,
    propagation: Propagation | None,
    uid: str | None,
    resource_version: str | None,
    dry_run: bool,
) -> bytes | None:
    options: dict[str, Any] = {}
    if grace_period_s is not None:
        options["gracePeriodSeconds"] = grace_period_s
    if propagation is not None:
        options["propagationPolicy"] = propagation
    preconditions = {"uid": uid, "resourceVersion": resource_version}
    if given := {key: value for key, value in preconditions.items() if value}:
        options["preconditions"] = given
    if dry_run:
        options["dryRun"] = ["All"]
    if not options:
        return None
    return encode({"apiVersion": "v1", "kind": "DeleteOptions", **options})
