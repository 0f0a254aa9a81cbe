"""Request info: verb, resource and options from method, path, query and headers. Pure functions.

GET /apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/train/status
    verb="get" group="batch.volcano.sh" version="v1alpha1" namespace="default"
    plural="jobs" name="train" subresource="status"
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

from hekla.apiserver import errors
from hekla.units.selectors import FieldSelector, LabelSelector, SelectorError

MAX_QUERY = 64 * 1024


@dataclass(slots=True)
class RequestInfo:
    """Verb, resource and name of a request; RBAC rules match it."""

    verb: str
    group: str = ""
    version: str = ""
    namespace: str = ""
    plural: str = ""
    name: str = ""
    subresource: str = ""
    path: str = ""

    @property
    def is_resource(self) -> bool:
        return bool(self.plural)


_BY_METHOD = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}


def parse_request_info(method: str, path: str, query: Mapping[str, str]) -> RequestInfo:
    """Parse a path. Non-resource paths have only verb and path."""
    verb = _BY_METHOD.get(method, method.lower())
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return RequestInfo(verb=verb, path=path)
    watching = query.get("watch", "").lower() in ("true", "1")
    if rest[0] == "watch" and len(rest) > 1:
        watching, rest = True, rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    plural = rest[0]
    name = rest[1] if len(rest) > 1 else ""
    subresource = "/".join(rest[2:])
    if plural == "namespaces" and not group:
        namespace = name  # a Namespace is authorized in itself
    if not name:
        verb = {"get": "watch" if watching else "list", "delete": "deletecollection"}.get(
            verb, verb
        )
    elif watching and verb == "get" and not subresource:
        verb = "watch"
    return RequestInfo(verb, group, version, namespace, plural, name, subresource, path)


@dataclass(slots=True)
class Accept:
    """The representation that the Accept header requests."""

    shape: str = "Object"  # Object, Table or PartialObjectMetadata
    yaml: bool = False


def parse_accept(header: str) -> Accept:
    """Return the first supported representation; protobuf and CBOR are skipped."""
    if not header:
        return Accept()
    for option in header.split(","):
        media, *parameters = [part.strip() for part in option.split(";")]
        given = dict(part.split("=", 1) for part in parameters if "=" in part)
        if media in ("application/json", "*/*", "application/*", "text/*"):
            shape = given.get("as", "")
            if shape in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList"):
                if given.get("g") != "meta.k8s.io" or given.get("v") not in ("v1", None):
                    continue
                return Accept(shape.removesuffix("List"))
            if shape:
                continue
            return Accept()
        if media in ("application/yaml", "text/yaml"):
            return Accept(yaml=True)
    raise errors.not_acceptable(
        "only the following media types are accepted: application/json, application/yaml"
    )


@dataclass(slots=True)
class Query:
    """Query parameters, checked on use."""

    values: dict[str, str] = field(default_factory=dict)
    repeated: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def parse(cls, raw: bytes) -> "Query":
        if not raw:
            return cls()
        if len(raw) > MAX_QUERY:
            raise errors.bad_request(f"the query string is longer than {MAX_QUERY} bytes")
        values: dict[str, str] = {}
        repeated: dict[str, list[str]] = {}
        for key, value in parse_qsl(raw.decode("latin-1"), keep_blank_values=True):
            values.setdefault(key, value)
            repeated.setdefault(key, []).append(value)
        return cls(values, repeated)

    def get(self, key: str, default: str = "") -> str:
        return self.values.get(key, default)

    def flag(self, key: str) -> bool:
        value = self.values.get(key, "")
        if value.lower() in ("", "false", "0"):
            return False
        if value.lower() in ("true", "1"):
            return True
        raise errors.bad_request(f"query parameter {key}={value!r} is not a boolean")

    def number(self, key: str, default: int | None = None) -> int | None:
        value = self.values.get(key, "")
        if not value:
            return default
        try:
            number = int(value)
        except ValueError:
            number = -1
        if number < 0:
            raise errors.bad_request(f"query parameter {key}={value!r} is not a whole number")
        return number

    @property
    def limit(self) -> int:
        """Return the page size; 0 for all. As upstream, -1 means all, too."""
        value = self.values.get("limit", "")
        if value.startswith("-") and value[1:].isdigit():
            return 0
        return self.number("limit", 0) or 0

    @property
    def is_dry_run(self) -> bool:
        """Whether it is a dry run; `Request.options` validates the values."""
        return bool(self.repeated.get("dryRun"))

    @property
    def resource_version_match(self) -> str:
        """Return the validated resourceVersionMatch of a list."""
        matching, version = self.get("resourceVersionMatch"), self.get("resourceVersion")
        field, reason, why = "resourceVersionMatch", "FieldValueForbidden", ""
        if self.get("sendInitialEvents"):
            field = "sendInitialEvents"
            why = "Forbidden: sendInitialEvents is forbidden for list"
        elif matching and not version:
            why = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        elif matching not in ("", "Exact", "NotOlderThan"):
            reason = "FieldValueNotSupported"
            why = f'Unsupported value: "{matching}": supported values: "Exact", "NotOlderThan", ""'
        elif matching == "Exact" and version == "0":
            why = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        if why:
            raise errors.invalid_options("ListOptions", field, reason, why)
        return matching

    def check_watch_match(self) -> None:
        """Refuse resourceVersionMatch for a watch without sendInitialEvents."""
        matching, initial = self.get("resourceVersionMatch"), self.get("sendInitialEvents")
        why = ""
        if matching and not initial:
            why = (
                "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents "
                "is provided"
            )
        elif initial and matching != "NotOlderThan":
            why = (
                "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            )
        if why:
            raise errors.invalid_options(
                "ListOptions", "resourceVersionMatch", "FieldValueForbidden", why
            )

    @property
    def labels(self) -> LabelSelector | None:
        text = self.get("labelSelector")
        if not text:
            return None
        try:
            return LabelSelector.parse(text)
        except SelectorError as error:
            raise errors.bad_request(f"unable to parse labelSelector {text!r}: {error}") from error

    @property
    def fields(self) -> FieldSelector | None:
        text = self.get("fieldSelector")
        if not text:
            return None
        try:
            return FieldSelector.parse(text)
        except SelectorError as error:
            raise errors.bad_request(f"unable to parse fieldSelector {text!r}: {error}") from error


def parse_revision(text: str) -> int | None:
    """Parse a resourceVersion parameter; None if unset."""
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise errors.bad_request(f"Invalid value: {text!r}: resourceVersion must be a number")
    return int(text)
