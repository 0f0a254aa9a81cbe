"""Failures a user can act on: what is wrong in one line, and what to do about it in another.

CommandFailed       exit code 255, as Volcano's: `Failed to view job: …`, then the hint
click.UsageError    exit code 1: the command line itself is wrong
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
    """A command could not do what it was asked. `hint` is the next step, on a line of its own."""

    def __init__(self, message: str, *, hint: str = "", code: int = FAILURE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code


def explained(error: KubeError) -> CommandFailed:
    """A failed request in the server's own words, with the step that usually helps."""
    if isinstance(error, ApiError):
        return CommandFailed(error.message or str(error), hint=_api_hint(error))
    return CommandFailed(str(error), hint=_transport_hint(error))


def _api_hint(error: ApiError) -> str:
    match error:
        case NotFound() if "could not find the requested resource" in error.message:
            return "this cluster does not know the kind; are Volcano's definitions installed?"
        case AlreadyExists():
            return "choose another name, or delete the old one first"
        case Unauthorized():
            return "the server does not know you: check the user of your context"
        case Forbidden():
            return "ask an administrator for the right, or use another context with --context"
    return ""


def _transport_hint(error: KubeError) -> str:
    match error:
        case ConfigError():
            return ""  # its message says what to change
        case ConnectionLost() | Timeout():
            return "is the cluster up? `hekla up` starts one here; --kubeconfig names another"
        case TlsError():
            return "is this the right cluster? --kubeconfig and --context choose one"
    return ""


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """`did you mean "train"?`, or nothing when nothing is near."""
    names = list(known)
    close = difflib.get_close_matches(wrong, names, 3, 0.6)
    if not close:
        close = [name for name in names if wrong and name.startswith(wrong)][:3]
    if not close:
        return ""
    return "did you mean " + " or ".join(f'"{name}"' for name in close) + "?"


def suggesting(hint: Callable[[], str]) -> str:
    """A hint that takes requests to find. Failing to find one must not hide the failure."""
    try:
        return hint()
    except KubeError:
        return ""
