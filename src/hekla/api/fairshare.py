"""The ConfigMap `hekla-fairshare`, as far as others look at it: the scheduler writes, vcctl shows.

Its third key, `history`, is the scheduler's own: from that it goes on counting after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

QUEUES_KEY: Final = "queues"
SHARES_KEY: Final = "shares"


class QueueShare(msgspec.Struct, frozen=True):
    """A queue's part of the cluster over time, and what it deserves now by its weight."""

    share: float
    deserved: Mapping[str, str] = {}


class Shares(msgspec.Struct, frozen=True, rename="camel"):
    """What namespaces and users had of the cluster over time, parts of one by name."""

    half_life_s: float
    namespace: Mapping[str, float] = {}
    user: Mapping[str, float] = {}


Queues = dict[str, QueueShare]
