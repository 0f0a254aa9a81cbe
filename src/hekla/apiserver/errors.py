"""Errors as the `Status` objects that Kubernetes clients expect.

    StatusError            any error; has the HTTP code and the Status fields
    ├── bad_request        400 BadRequest        malformed request
    ├── unauthorized       401 Unauthorized      no valid token
    ├── forbidden          403 Forbidden         refused by a rule, a quota or RBAC
    ├── not_found          404 NotFound
    ├── method_not_allowed 405 MethodNotAllowed
    ├── already_exists     409 AlreadyExists
    ├── conflict           409 Conflict          the object has changed
    ├── expired            410 Expired           the watch cache has dropped the resourceVersion
    ├── too_large          413 RequestEntityTooLarge
    ├── unsupported_media  415 UnsupportedMediaType
    ├── invalid            422 Invalid           field errors, one cause each
    ├── too_many_requests  429 TooManyRequests
    └── internal           500 InternalError

The functions build one exception type: callers branch on `code` and `reason`, which are part of
the response, not on a Python class.
"""

from collections.abc import Mapping, Sequence
from typing import Any


class StatusError(Exception):
    """An error that becomes a `Status` response."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        headers: Sequence[tuple[str, str]] = (),
        metadata: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers
        self.metadata = metadata

    def body(self) -> dict[str, Any]:
        """Return the `Status` object."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata or {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


def _details(group: str, plural: str, name: str) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if plural:
        details["kind"] = plural
    return details


def qualified(group: str, plural: str) -> str:
    """Return `pods` or `jobs.batch.volcano.sh`, as in Kubernetes' messages."""
    return f"{plural}.{group}" if group else plural


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized(message: str = "Unauthorized") -> StatusError:
    return StatusError(401, "Unauthorized", message, headers=[("www-authenticate", "Bearer")])


def forbidden(group: str, plural: str, name: str, why: str) -> StatusError:
    what = f'{qualified(group, plural)} "{name}"' if name else qualified(group, plural)
    return StatusError(
        403, "Forbidden", f"{what} is forbidden: {why}", _details(group, plural, name)
    )


def not_found(group: str, plural: str, name: str) -> StatusError:
    message = f'{qualified(group, plural)} "{name}" not found'
    return StatusError(404, "NotFound", message, _details(group, plural, name))


def no_such_path() -> StatusError:
    # kubectl reads `details` without checking that it exists.
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, {})


def already_exists(group: str, plural: str, name: str) -> StatusError:
    message = f'{qualified(group, plural)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _details(group, plural, name))


def conflict(group: str, plural: str, name: str, why: str) -> StatusError:
    message = f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(group, plural, name))


CHANGED_MEANWHILE = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def expired(message: str, *, continue_token: str | None = None) -> StatusError:
    metadata = {"continue": continue_token} if continue_token else None
    return StatusError(410, "Expired", message, metadata=metadata)


def too_large(limit: int) -> StatusError:
    message = f"Request entity too large: limit is {limit} bytes; split the object"
    return StatusError(413, "RequestEntityTooLarge", message)


def unsupported_media(given: str, accepted: Sequence[str]) -> StatusError:
    message = (
        f"the body of the request was in an unknown format ({given or 'no content type'}); "
        f"accepted media types include: {', '.join(accepted)}"
    )
    return StatusError(415, "UnsupportedMediaType", message)


def not_acceptable(message: str) -> StatusError:
    return StatusError(406, "NotAcceptable", message, {})


def invalid(group: str, kind: str, name: str, causes: Sequence[Mapping[str, Any]]) -> StatusError:
    """Return 422; each cause is `{"reason", "message", "field"}`."""
    lines = [f"{cause['field']}: {cause['message']}" for cause in causes]
    text = lines[0] if len(lines) == 1 else "[" + ", ".join(lines) + "]"
    details = _details(group, kind, name)
    details["causes"] = list(causes)
    message = f'{qualified(group, kind)} "{name}" is invalid: {text}'
    return StatusError(422, "Invalid", message, details)


def invalid_options(kind: str, field: str, reason: str, message: str) -> StatusError:
    """Return 422 for a request parameter; `kind` is CreateOptions, ListOptions and so on."""
    cause = {"reason": reason, "message": message, "field": field}
    return invalid("meta.k8s.io", kind, "", [cause])


def too_many_requests(message: str, retry_after_s: int = 1, **details: Any) -> StatusError:
    return StatusError(
        429,
        "TooManyRequests",
        message,
        {**details, "retryAfterSeconds": retry_after_s},
        headers=[("retry-after", str(retry_after_s))],
    )


def version_too_large(requested: int, current: int) -> StatusError:
    message = f"Too large resource version: {requested}, current: {current}"
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    return StatusError(504, "Timeout", message, details, headers=[("retry-after", "1")])


def internal(message: str) -> StatusError:
    return StatusError(500, "InternalError", f"Internal error occurred: {message}")


def unavailable(message: str) -> StatusError:
    # No Retry-After: Go clients would retry ten times before they show the message.
    return StatusError(503, "ServiceUnavailable", message)
