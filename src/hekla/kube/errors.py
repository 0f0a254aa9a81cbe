"""What can go wrong between us and an API server.

    KubeError
    ├── ConfigError                 the kubeconfig, or a credential it names, cannot be used
    ├── Fenced                      a write was not sent: this process may not write any more
    ├── TransportError              no usable answer arrived
    │   ├── ConnectionLost          refused, reset or cut off (`established` tells which)
    │   ├── TlsError                the server's certificate, or ours, was not accepted
    │   ├── Timeout                 the server took longer than we were willing to wait
    │   └── ResponseTooLarge        the answer passed our own bound and was dropped unread
    ├── ProtocolError               an answer arrived and is not what Kubernetes would say
    └── ApiError                    the server answered, and refused
        ├── BadRequest              400
        ├── Unauthorized            401
        ├── Forbidden               403
        ├── NotFound                404
        ├── MethodNotAllowed        405
        ├── Conflict                409  somebody else wrote first
        │   └── AlreadyExists       409  reason AlreadyExists: the name is taken
        ├── Gone                    410  that resourceVersion or continue token is too old
        ├── TooLarge                413
        ├── Invalid                 422
        ├── TooManyRequests         429
        └── ServerError             5xx

What a newcomer gets wrong: two different refusals share status 409. A `Conflict` on update asks
for a fresh read and another try; `AlreadyExists` on create asks for neither. The class tells them
apart.

Messages are safe to log: no header, token or request body is ever put into one, and a response
body that is not a `Status` is cut to a bounded, printable piece (it may be a proxy's HTML page).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

# Enough to recognise a proxy's error page in a log line, too little to flood one. A guess.
MAX_FOREIGN_BODY_CHARS = 200
MAX_MESSAGE_CHARS = 4096


class KubeError(Exception):
    """The root: catch it to mean "anything went wrong while talking to the API server"."""


class ConfigError(KubeError):
    """The kubeconfig, or a credential it names, cannot be used; the message says what to change."""


class Fenced(KubeError):
    """A write was not sent: somebody else may lead by now, and two must not write."""


class TransportError(KubeError):
    """No usable answer arrived. Whether the server acted on the request is unknown."""


class ConnectionLost(TransportError):
    """The connection was refused, reset or cut off.

    `established` is False only if the request certainly never reached a server, so that even a
    create may be sent again.
    """

    def __init__(self, message: str, *, established: bool = True) -> None:
        super().__init__(message)
        self.established = established


class TlsError(TransportError):
    """The server's certificate, or ours, was not accepted. Trying again will not help."""


class Timeout(TransportError):
    """The server took longer than we were willing to wait. It may still act on the request."""


class ResponseTooLarge(TransportError):
    """The answer passed our own bound on response bodies and was dropped unread."""


class ProtocolError(KubeError):
    """An answer arrived, and it is not what a Kubernetes API server would say."""


class ApiError(KubeError):
    """The server refused. Subclasses name the usual reasons; compare classes, not numbers."""

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
        # Exceptions cross process boundaries (tests under xdist); keyword arguments would be lost.
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
        """The field-by-field complaints of a validation failure, as `field: message`."""
        found = self.details.get("causes") or []
        return [
            f"{cause.get('field')}: {cause.get('message')}"
            if cause.get("field")
            else str(cause.get("message", ""))
            for cause in found
            if isinstance(cause, Mapping)
        ]


class BadRequest(ApiError):
    """400: the request itself is malformed."""


class Unauthorized(ApiError):
    """401: the server does not know who we are."""


class Forbidden(ApiError):
    """403: the server knows who we are and says no."""


class NotFound(ApiError):
    """404: no such object, or no such kind (its CRD may not be installed)."""


class MethodNotAllowed(ApiError):
    """405: this resource does not support the verb."""


class Conflict(ApiError):
    """409: somebody else wrote first; read again and decide again."""


class AlreadyExists(Conflict):
    """409 with reason AlreadyExists: the name is taken."""


class Gone(ApiError):
    """410: that resourceVersion or continue token is too old; list again."""


class TooLarge(ApiError):
    """413: the server refuses a body of this size."""


class Invalid(ApiError):
    """422: the object breaks its kind's rules; see `causes`."""


class TooManyRequests(ApiError):
    """429: slow down, or (for an eviction) a disruption budget forbids it for now."""


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
    """The error that a refused request's body and headers stand for.

    `what` names the request ("GET /api/v1/pods") and is used when the body does not explain itself.
    `http_status` 0 means the Status came inside a stream, whose own HTTP status was 200.
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
        # A zero here is Go's zero value, not advice.
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
        return "the server refused without saying why"
    cut = shown[:MAX_FOREIGN_BODY_CHARS]
    return f"the answer is not a Kubernetes Status: {cut}{'…' if len(shown) > len(cut) else ''}"


def _seconds(retry_after: str | None) -> float | None:
    # HTTP also allows a date here. API servers send seconds; a date is treated as no advice.
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
