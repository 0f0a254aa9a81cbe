"""Requests and responses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hekla.apiserver import errors
from hekla.apiserver.auth.authenticator import User
from hekla.apiserver.registry.options import Options
from hekla.apiserver.request_info import Accept, Query, RequestInfo

JSON = "application/json"


@dataclass(slots=True)
class Response:
    status: int
    body: bytes | Iterable[bytes] | AsyncIterator[bytes]
    content_type: str = JSON
    headers: list[tuple[str, str]] = field(default_factory=list)
    may_compress: bool = False
    """Whether the client takes gzip; only responses about objects are compressed, as upstream."""
    ended: Callable[[], None] | None = None
    """Called after the last byte is sent or the client disconnected."""

    @classmethod
    def of(cls, obj: Any, status: int = 200) -> Response:
        return cls(status, msgspec.json.encode(obj))


_OPTIONS = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}


@dataclass(slots=True)
class Request:
    """A parsed and authenticated request with its body."""

    target: RequestInfo
    query: Query
    accept: Accept
    user: User
    content_type: str = ""
    user_agent: str = ""
    body: bytes = b""
    warnings: list[str] = field(default_factory=list)

    def options(self) -> Options:
        manager = self.query.get("fieldManager") or self.user_agent.split("/", 1)[0] or "unknown"
        if len(manager) > 128:
            raise errors.bad_request("fieldManager may not be longer than 128 characters")
        validation = self.query.get("fieldValidation") or "Warn"
        kind = _OPTIONS.get(self.target.verb, "DeleteOptions")
        if validation not in ("Ignore", "Warn", "Strict"):
            raise errors.invalid_options(
                kind,
                "fieldValidation",
                "FieldValueNotSupported",
                f'Unsupported value: "{validation}": supported values: "", "Ignore", "Strict", '
                '"Warn"',
            )
        requested = self.query.repeated.get("dryRun", [])
        if any(value != "All" for value in requested):
            listed = ", ".join(f'"{value}"' for value in requested)
            raise errors.invalid_options(
                kind,
                "dryRun",
                "FieldValueNotSupported",
                f'Unsupported value: [{listed}]: supported values: "All"',
            )
        return Options(
            user=self.user,
            dry_run=self.query.is_dry_run,
            field_manager=manager[:128],
            field_validation=validation,
            find_duplicates=validation != "Ignore" and "fieldValidation" in self.query.values,
            subresource=self.target.subresource,
            warnings=self.warnings,
        )
