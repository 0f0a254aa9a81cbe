"""Errors of the API clients.

    KubeError
    ├── ConfigError                 the kubeconfig or one of its credentials is unusable
    ├── Fenced                      a write was not sent: this process is no longer the leader
    ├── TransportError              no usable response
    │   ├── ConnectionLost          refused, reset or closed (see `established`)
    │   ├── TlsError                the server's or the client's certificate was not accepted
    │   ├── Timeout                 no response in time
    │   └── ResponseTooLarge        the response exceeds the client's limit
    ├── ProtocolError               the response is not valid for a Kubernetes API server
    └── ApiError                    an error response of the server
        ├── BadRequest              400
        ├── Unauthorized            401
        ├── Forbidden               403
        ├── NotFound                404
        ├── MethodNotAllowed        405
        ├── Conflict                409  the object was changed by another client
        │   └── AlreadyExists       409  reason AlreadyExists: the name is taken
        ├── Gone                    410  the resourceVersion or continue token is too old
        ├── TooLarge                413
        ├── Invalid                 422
        ├── TooManyRequests         429
        └── ServerError             5xx

Note: two errors have status 409. After `Conflict` on update, read again and retry; not so after
`AlreadyExists` on create.

Messages are safe to log: they contain no header, token or request body, and a response body that is
not a `Status` is cut to a bounded, printable excerpt (it may be a proxy's HTML page).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

# Enough to recognise a proxy's error page, too little to flood a log. A guess.
MAX_FOREIGN_BODY_CHARS = 200
MAX_MESSAGE_CHARS = 4096


class KubeError(Exception):
    """Base class of all errors.

    Example:
        try:
            job.delete()
        except KubeError as error:
            print(error)
    """


class ConfigError(KubeError):
    """The kubeconfig or one of its credentials is unusable, or no cluster is configured.

    Example:
        try:
            list_jobs()
        except ConfigError as error:
            print(error)  # says how to start a cluster
    """


class Fenced(KubeError):
    """A write was not sent: another process may be the leader."""


class TransportError(KubeError):
    """No usable response. Whether the server processed the request is unknown.

    Example:
        try:
            list_jobs()
        except TransportError:
            print("the server is away")
    """


class ConnectionLost(TransportError):
    """The connection was refused, reset or closed.

    `established` is False only if the request never reached a server, so that even a create may be
    retried.
    """

    def __init__(self, message: str, *, established: bool = True) -> None:
        super().__init__(message)
        self.established = established


class TlsError(TransportError):
    """The server's or the client's certificate was not accepted. Not retried."""


class Timeout(TransportError):
    """No response in time. The server may still process the request."""


class ResponseTooLarge(TransportError):
    """The response body exceeds the client's limit."""


class ProtocolError(KubeError):
    """The response is not valid for a Kubernetes API server."""


class ApiError(KubeError):
    """An error response. Check the subclass, not the status code.

    Example:
        try:
            job.delete()
        except ApiError as error:
            print(error.reason, error.message)
    """

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        *,
        details: Mapping[str, Any] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        self.status = status
        self.reason = reason
        self.message = message[:MAX_MESSAGE_CHARS]
        self.details: Mapping[str, Any] = details or {}
        self.retry_after_s = retry_after_s
        super().__init__(self.message or reason or f"HTTP {status}")

    def __str__(self) -> str:
        label = f"{self.status} {self.reason}".strip()
        return f"{self.message} ({label})" if self.message else label

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are pickled (pytest-xdist); keyword arguments would be lost.
        return (
            _rebuild,
            (
                type(self),
                self.status,
                self.reason,
                self.message,
                dict(self.details),
                self.retry_after_s,
            ),
        )

    @property
    def causes(self) -> list[str]:
        """The field errors of a validation failure, as `field: message`."""
        causes = self.details.get("causes") or []
        return [
            f"{cause.get('field')}: {cause.get('message')}"
            if cause.get("field")
            else str(cause.get("message", ""))
            for cause in causes
            if isinstance(cause, Mapping)
        ]


class BadRequest(ApiError):
    """400: the request is malformed.

    Example:
        try:
            list_jobs(labels="team in")
        except BadRequest as error:
            print(error)
    """


class Unauthorized(ApiError):
    """401: authentication failed.

    Example:
        try:
            list_jobs()
        except Unauthorized:
            print("the token has expired")
    """


class Forbidden(ApiError):
    """403: not authorized.

    Example:
        try:
            list_jobs(all_namespaces=True)
        except Forbidden as error:
            print(error)
    """


class NotFound(ApiError):
    """404: no such object, or no such kind (its CRD may not be installed).

    Example:
        try:
            job = JobHandle.of("hello")
        except NotFound:
            job = submit(Job("hello", [Task(command="echo hi")]))
    """


class MethodNotAllowed(ApiError):
    """405: this resource does not support the verb."""


class Conflict(ApiError):
    """409: the object has changed; read it again and retry.

    Example:
        try:
            job.scale(4)
        except Conflict:
            job.scale(4)
    """


class AlreadyExists(Conflict):
    """409 with reason AlreadyExists: the name is taken.

    Example:
        try:
            job = submit(Job("hello", [Task(command="echo hi")]))
        except AlreadyExists:
            job = JobHandle.of("hello")
    """


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class TooLarge(ApiError):
    """413: the body is too large."""


class Invalid(ApiError):
    """422: the object is invalid; see `causes`.

    Example:
        try:
            submit(Job("train", [Task("worker", min_available=4)]))
        except Invalid as error:
            print(error.causes)
    """


class TooManyRequests(ApiError):
    """429: rate limited, or (for an eviction) forbidden by a disruption budget."""


class ServerError(ApiError):
    """5xx: the server failed."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    409: Conflict,
    410: Gone,
    413: TooLarge,
    422: Invalid,
    429: TooManyRequests,
}


class _Status(msgspec.Struct):
    kind: str = ""
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: dict[str, Any] | None = None


_STATUS_DECODER = msgspec.json.Decoder(_Status)


def error_from_status(
    body: bytes | msgspec.Raw, *, http_status: int = 0, retry_after: str | None = None, what: str
) -> ApiError:
    """Return the error for a response's body and headers.

    `what` names the request ("GET /api/v1/pods") for bodies that are not a Status. `http_status` 0
    means that the Status was in a stream whose HTTP status was 200.
    """
    try:
        status = _STATUS_DECODER.decode(body)
    except msgspec.DecodeError:
        status = _Status()
    if status.kind != "Status":
        code = http_status or 500
        return _class_for(code, "")(
            code, "", f"{what}: {_foreign(bytes(body))}", retry_after_s=_seconds(retry_after)
        )
    code = http_status or status.code or 500
    details = status.details or {}
    wait_s = _seconds(retry_after)
    if wait_s is None:
        hinted = details.get("retryAfterSeconds")
        # 0 is Go's zero value.
        wait_s = float(hinted) if isinstance(hinted, int | float) and hinted > 0 else None
    reason = status.reason or ""
    return _class_for(code, reason)(
        code, reason, status.message or what, details=details, retry_after_s=wait_s
    )


def _class_for(code: int, reason: str) -> type[ApiError]:
    if reason == "AlreadyExists":
        return AlreadyExists
    if reason == "Expired":
        # A watch reports an expired version as code 410 with this reason, or only the reason.
        return Gone
    if code >= 500:
        return ServerError
    return _BY_STATUS.get(code, ApiError)


def _foreign(body: bytes) -> str:
    text = body[: MAX_FOREIGN_BODY_CHARS * 4].decode("utf-8", "replace")
    shown = "".join(c if c.isprintable() else " " for c in text)
    shown = " ".join(shown.split())
    if not shown:
        return "the server gave no reason"
    cut = shown[:MAX_FOREIGN_BODY_CHARS]
    return f"the response is not a Kubernetes Status: {cut}{'…' if len(shown) > len(cut) else ''}"


def _seconds(retry_after: str | None) -> float | None:
    # HTTP also allows a date here; API servers send seconds.
    if retry_after is None:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def _rebuild(
    cls: type[ApiError],
    status: int,
    reason: str,
    message: str,
    details: dict[str, Any],
    retry_after_s: float | None,
) -> ApiError:
    return cls(status, reason, message, details=details, retry_after_s=retry_after_s)


def is_namespace_terminating(error: Exception) -> bool:
    """Return whether a creation was refused because the namespace is being deleted."""
    return isinstance(error, Forbidden) and "because it is being terminated" in error.message
