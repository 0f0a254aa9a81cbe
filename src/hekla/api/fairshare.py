"""The ConfigMap `hekla-fairshare`: the scheduler writes it, vcctl shows it.

Its third key, `history`, is private to the scheduler, which continues from it after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

QUEUES_KEY: Final = "queues"
SHARES_KEY: Final = "shares"


class QueueShare(msgspec.Struct, frozen=True):
    """A queue's usage over time as a share of the cluster, and its current deserved resources."""

    share: float
    deserved: Mapping[str, str] = {}


class Shares(msgspec.Struct, frozen=True, rename="camel"):
    """Usage over time of namespaces and users, as shares of the cluster by name."""

    half_life_s: float
    namespace: Mapping[str, float] = {}
    user: Mapping[str, float] = {}


Queues = dict[str, QueueShare]
