"""The retry policy: when to retry, and after which delay. Pure functions.

Note: a request whose response was lost may have been processed. A create is retried only if the
server never received it, or answered that it did nothing (429, 503).
"""

from __future__ import annotations

from random import Random

import msgspec

from hekla.kube.calls import Call
from hekla.kube.errors import ApiError, ConnectionLost, KubeError, Timeout

_TRANSIENT = frozenset({500, 502, 503, 504})


class RetryPolicy(msgspec.Struct, frozen=True):
    """Limits of retries."""

    attempts: int = 5
    """Attempts in total."""
    base_s: float = 0.1
    cap_s: float = 5.0
    max_retry_after_s: float = 30.0
    """A longer Retry-After is not waited for: the error is raised."""

    def delay_s(self, call: Call, tries: int, error: KubeError, random: Random) -> float | None:
        """Return the delay before the next attempt, or None to give up."""
        if tries >= self.attempts or not _may_resend(call, error):
            return None
        if isinstance(error, ApiError) and error.retry_after_s is not None:
            if error.retry_after_s > self.max_retry_after_s:
                return None
            # All clients got the same number; jitter spreads them.
            return error.retry_after_s + random.uniform(0.0, self.base_s)
        return backoff_s(tries, self.base_s, self.cap_s, random)


NO_RETRIES = RetryPolicy(attempts=1)


def backoff_s(failures: int, base_s: float, cap_s: float, random: Random) -> float:
    """Return an exponential delay with jitter between half and the whole of the step."""
    # Limit the exponent first: 2.0**2000 overflows.
    step = min(cap_s, base_s * 2.0 ** min(failures - 1, 60))
    return step * random.uniform(0.5, 1.0)


class Backoff:
    """Counts consecutive failures and returns the delay after each."""

    def __init__(self, base_s: float, cap_s: float, random: Random) -> None:
        self._base_s = base_s
        self._cap_s = cap_s
        self._random = random
        self.failures = 0

    def next_s(self) -> float:
        """Return the delay after one more failure."""
        self.failures += 1
        return backoff_s(self.failures, self._base_s, self._cap_s, self._random)

    def reset(self) -> None:
        """Reset after a success."""
        self.failures = 0


def _may_resend(call: Call, error: KubeError) -> bool:
    if isinstance(error, ConnectionLost):
        return call.idempotent or not error.established
    if isinstance(error, Timeout):
        # The server is slow. Reads are retried; writes are not, as the caller has waited for the
        # whole timeout.
        return call.method == "GET"
    if isinstance(error, ApiError):
        if error.status == 429:
            return call.retry_throttled
        if error.status == 503:
            return True
        return error.status in _TRANSIENT and call.idempotent
    return False
