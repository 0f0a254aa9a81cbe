"""When to try again, and how long to wait first. Pure: the callers sleep.

What a newcomer gets wrong: a lost connection does not mean that nothing happened. A create whose
answer was lost may have created, so it is sent again only if the server certainly never saw it, or
said that it did nothing (429, 503).
"""

from __future__ import annotations

from random import Random

import msgspec

from hekla.kube.calls import Call
from hekla.kube.errors import ApiError, ConnectionLost, KubeError, Timeout

_TRANSIENT = frozenset({500, 502, 503, 504})


class RetryPolicy(msgspec.Struct, frozen=True):
    """How stubborn a client is."""

    attempts: int = 5
    """Tries in all, the first included."""
    base_s: float = 0.1
    cap_s: float = 5.0
    max_retry_after_s: float = 30.0
    """A server asking for a longer pause is refused to: the caller hears of it instead."""

    def delay_s(self, call: Call, tries: int, error: KubeError, random: Random) -> float | None:
        """Seconds to wait before sending `call` again after `tries` tries, or None to give up."""
        if tries >= self.attempts or not _may_resend(call, error):
            return None
        if isinstance(error, ApiError) and error.retry_after_s is not None:
            if error.retry_after_s > self.max_retry_after_s:
                return None
            # Everyone was told the same number; jitter keeps the herd from returning as one.
            return error.retry_after_s + random.uniform(0.0, self.base_s)
        return backoff_s(tries, self.base_s, self.cap_s, random)


NO_RETRIES = RetryPolicy(attempts=1)


def backoff_s(failures: int, base_s: float, cap_s: float, random: Random) -> float:
    """Exponential in the number of failures, from half to the whole of the step at random."""
    # The exponent is bounded before the power: 2.0**2000 overflows.
    step = min(cap_s, base_s * 2.0 ** min(failures - 1, 60))
    return step * random.uniform(0.5, 1.0)


class Backoff:
    """Counts consecutive failures and says how long to wait after each."""

    def __init__(self, base_s: float, cap_s: float, random: Random) -> None:
        self._base_s = base_s
        self._cap_s = cap_s
        self._random = random
        self.failures = 0

    def next_s(self) -> float:
        """Seconds to wait after one more failure."""
        self.failures += 1
        return backoff_s(self.failures, self._base_s, self._cap_s, self._random)

    def reset(self) -> None:
        """It worked: the next failure starts from the shortest wait."""
        self.failures = 0


def _may_resend(call: Call, error: KubeError) -> bool:
    if isinstance(error, ConnectionLost):
        return call.idempotent or not error.established
    if isinstance(error, Timeout):
        # The server is slow, not gone. Reads may ask again; writes go back to the caller, who has
        # already waited the whole time limit once.
        return call.method == "GET"
    if isinstance(error, ApiError):
        if error.status == 429:
            return call.retry_throttled
        if error.status == 503:
            return True
        return error.status in _TRANSIENT and call.idempotent
    return False
