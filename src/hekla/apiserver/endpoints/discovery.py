"""Discovery: group lists, resource lists, aggregated discovery, version and OpenAPI documents.

Documents are built from the registry and cached until it changes; clients revalidate by ETag.
"""

from __future__ import annotations

import hashlib

import msgspec

from hekla.api import kinds
from hekla.apiserver.endpoints import openapi_protobuf
from hekla.apiserver.endpoints.messages import Response
from hekla.apiserver.endpoints.openapi import OpenApi
from hekla.apiserver.schema.kinds import Registry, Served
from hekla.units.objects import Object

VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+hekla",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "cpython",
    "platform": "linux/amd64",
}
_AGGREGATED = "APIGroupDiscoveryList"


class Discovery:
    """Serves GET below /api, /apis, /openapi and /version."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._cache: dict[tuple[str, str], Response] = {}
        self._cached_at = -1
        self._openapi = OpenApi(registry)

    def answer(self, path: str, accept: str, etag: str = "") -> Response | None:
        if self._cached_at != self._registry.revision:
            self._cache.clear()
            self._cached_at = self._registry.revision
        form = _form(path, accept)
        response = self._cache.get((path, form))
        if response is None:
            response = self._make(path, form)
            if response is None:
                return None
            self._cache[path, form] = response
        if etag and ("etag", etag) in response.headers:
            return Response(304, b"", response.content_type, list(response.headers))
        return response

    def _make(self, path: str, form: str) -> Response | None:
        parts = path.strip("/").split("/")
        match parts:
            case ["version"]:
                return Response.of(VERSION)
            case ["api"] if form:
                return _aggregate_response(self._aggregated([""]), form)
            case ["apis"] if form:
                return _aggregate_response(self._aggregated(self._groups()), form)
            case ["api"]:
                return Response.of({"kind": "APIVersions", "versions": ["v1"]})
            case ["apis"]:
                groups = [self._group(name) for name in self._groups()]
                return Response.of({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
            case ["api", version]:
                return self._resource_list("", version)
            case ["apis", group]:
                return Response.of(self._group(group)) if group in self._groups() else None
            case ["apis", group, version]:
                return self._resource_list(group, version)
            case [""]:
                return Response.of({"paths": self._paths()})
        return self._openapi.answer(path, form) if parts[0] == "openapi" else None

    def _paths(self) -> list[str]:
        paths = {served.kind.path_prefix for served in self._registry.all()}
        paths |= {"/api", "/apis", "/healthz", "/livez", "/readyz", "/metrics", "/version"}
        return sorted(paths | {"/openapi/v2", "/openapi/v3"})

    def _groups(self) -> list[str]:
        """Return groups in order of preference: built-in first, then by name."""
        builtin = dict.fromkeys(kind.group for kind in kinds.BUILTIN if kind.group)
        custom = sorted({s.kind.group for s in self._registry.all()} - set(builtin) - {""})
        return [*builtin, *custom]

    def _versions(self, group: str) -> list[str]:
        versions = {s.kind.version for s in self._registry.all() if s.kind.group == group}
        return sorted(versions, key=_version_rank)

    def _group(self, group: str) -> Object:
        versions = [
            {"groupVersion": f"{group}/{version}", "version": version}
            for version in self._versions(group)
        ]
        return {
            "kind": "APIGroup",
            "apiVersion": "v1",
            "name": group,
            "versions": versions,
            "preferredVersion": versions[0],
        }

    def _of(self, group: str, version: str) -> list[Served]:
        return sorted(
            (s for s in self._registry.all() if (s.kind.group, s.kind.version) == (group, version)),
            key=lambda served: served.kind.plural,
        )

    def _resource_list(self, group: str, version: str) -> Response | None:
        served = self._of(group, version)
        if not served:
            return None
        resources: list[Object] = []
        for one in served:
            kind = one.kind
            entry: Object = {
                "name": kind.plural,
                "singularName": kind.singular,
                "namespaced": kind.namespaced,
                "kind": kind.kind,
                "verbs": list(kind.verbs),
            }
            if kind.short_names:
                entry["shortNames"] = list(kind.short_names)
            if kind.categories:
                entry["categories"] = list(kind.categories)
            if not kind.virtual:
                entry["storageVersionHash"] = _hash(one.storage)
            resources.append(entry)
            for sub in (kinds.subresource(kind, name) for name in kind.subresources):
                resources.append(
                    {
                        "name": f"{kind.plural}/{sub.name}",
                        "singularName": "",
                        "namespaced": kind.namespaced,
                        "group": sub.group,
                        "version": sub.version,
                        "kind": sub.kind,
                        "verbs": list(sub.verbs),
                    }
                )
        group_version = f"{group}/{version}" if group else version
        return Response.of(
            {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": group_version,
                "resources": resources,
            }
        )

    def _aggregated(self, groups: list[str]) -> list[Object]:
        return [
            {
                "metadata": {"name": group, "creationTimestamp": None} if group else {},
                "versions": [
                    {
                        "version": version,
                        "resources": [_aggregated_resource(s) for s in self._of(group, version)],
                        "freshness": "Current",
                    }
                    for version in self._versions(group)
                ],
            }
            for group in groups
        ]


def _aggregated_resource(served: Served) -> Object:
    kind = served.kind
    entry: Object = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    subresources = [
        {
            "subresource": sub.name,
            "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind},
            "verbs": list(sub.verbs),
        }
        for sub in (kinds.subresource(kind, name) for name in kind.subresources)
    ]
    if subresources:
        entry["subresources"] = subresources
    return entry


def _form(path: str, accept: str) -> str:
    """Return the variant of a document that the client accepts; empty for the plain one."""
    if path in ("/api", "/apis"):
        return _aggregated_form(accept)
    return openapi_protobuf.media_type(accept) if path == "/openapi/v2" else ""


def _aggregated_form(accept: str) -> str:
    """Return the preferred version of aggregated discovery, if any: `v2` or `v2beta1`."""
    for option in accept.split(","):
        if f"as={_AGGREGATED}" in option and "g=apidiscovery.k8s.io" in option:
            for version in ("v2beta1", "v2"):
                if f"v={version}" in option.replace(" ", "").split(";"):
                    return version
    return ""


def _aggregate_response(items: list[Object], version: str) -> Response:
    body = msgspec.json.encode(
        {
            "kind": _AGGREGATED,
            "apiVersion": f"apidiscovery.k8s.io/{version}",
            "metadata": {},
            "items": items,
        }
    )
    content_type = f"application/json;g=apidiscovery.k8s.io;v={version};as={_AGGREGATED}"
    etag = f'"{hashlib.sha256(body).hexdigest().upper()[:64]}"'
    headers = [("etag", etag), ("vary", "Accept"), ("cache-control", "public")]
    return Response(200, body, content_type, headers)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _version_rank(version: str) -> tuple[int, int, int, str]:
    """Order versions: GA, beta, alpha; newer first; others last, by name."""
    text = version.removeprefix("v")
    for rank, word in ((1, "beta"), (2, "alpha")):
        major, found, minor = text.partition(word)
        if found and major.isdigit() and minor.isdigit():
            return rank, -int(major), -int(minor), ""
    if version.startswith("v") and text.isdigit():
        return 0, -int(text), 0, ""
    return 3, 0, 0, version
