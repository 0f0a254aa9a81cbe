"""Failures with a message and a hint.

CommandFailed       exit code 255, as Volcano's: `Failed to view job: …`, then the hint
click.UsageError    exit code 1: the command line is wrong
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

from hekla.kube.errors import (
    AlreadyExists,
    ApiError,
    ConfigError,
    ConnectionLost,
    Forbidden,
    KubeError,
    NotFound,
    Timeout,
    TlsError,
    Unauthorized,
)

FAILURE = 255
USAGE = 1
TIMED_OUT = 124  # as coreutils' `timeout`


class CommandFailed(Exception):
    """A command failed. `hint` is the next step, printed on its own line."""

    def __init__(self, message: str, *, hint: str = "", code: int = FAILURE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code


def failure_of(error: KubeError) -> CommandFailed:
    """Return the failure of a request: the server's message, and a hint."""
    if isinstance(error, ApiError):
        return CommandFailed(error.message or str(error), hint=_api_hint(error))
    return CommandFailed(str(error), hint=_transport_hint(error))


def _api_hint(error: ApiError) -> str:
    match error:
        case NotFound() if "could not find the requested resource" in error.message:
            return "this cluster does not have the kind; are Volcano's CRDs installed?"
        case AlreadyExists():
            return "choose another name, or delete the existing object"
        case Unauthorized():
            return "authentication failed: check the user of your context"
        case Forbidden():
            return "ask an administrator for the permission, or use another context with --context"
    return ""


def _transport_hint(error: KubeError) -> str:
    match error:
        case ConfigError():
            return ""  # the message already names the change
        case ConnectionLost() | Timeout():
            return "is the cluster up? `hekla up` starts one here; --kubeconfig names another"
        case TlsError():
            return "is this the right cluster? --kubeconfig and --context choose one"
    return ""


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """Return `did you mean "train"?`, or an empty string if no name is close."""
    names = list(known)
    close = difflib.get_close_matches(wrong, names, 3, 0.6)
    if not close:
        close = [name for name in names if wrong and name.startswith(wrong)][:3]
    if not close:
        return ""
    return "did you mean " + " or ".join(f'"{name}"' for name in close) + "?"


def safe_hint(hint: Callable[[], str]) -> str:
    """Compute a hint that needs requests. Note: an error here must not hide the failure."""
    try:
        return hint()
    except KubeError:
        return ""
