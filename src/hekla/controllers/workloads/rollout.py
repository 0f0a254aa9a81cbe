"""The sizes of the replica sets of a deployment during a rollout. Pure arithmetic.

Every function takes the deployment and its replica sets and returns sizes by set name; sets that
are not named keep their size. Bounds: never more than replicas + maxSurge pods, and no fewer
available ones than replicas - maxUnavailable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from hekla.controllers.objects import annotations_of, created_at, key_of, status_of
from hekla.units.objects import Object

DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
MAXIMUM: Final = "deployment.kubernetes.io/max-replicas"
Sizes = dict[str, int]


def name_of(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def size(replica_set: Object) -> int:
    """Return a set's `spec.replicas`."""
    return int((replica_set.get("spec") or {}).get("replicas") or 0)


def available(replica_set: Object) -> int:
    return int(status_of(replica_set).get("availableReplicas") or 0)


def desired_replicas(deployment: Object) -> int:
    return int(deployment["spec"].get("replicas") or 0)


def oldest_first(sets: Iterable[Object]) -> list[Object]:
    return sorted(sets, key=lambda each: (created_at(each), key_of(each)))


def is_rolling(deployment: Object) -> bool:
    """Return whether the strategy is RollingUpdate."""
    return (deployment["spec"].get("strategy") or {}).get("type") != "Recreate"


def surge_and_unavailable(deployment: Object) -> tuple[int, int]:
    """Return maxSurge and maxUnavailable as numbers."""
    if not is_rolling(deployment):
        return 0, 0
    given = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    total = desired_replicas(deployment)
    surge = resolve_int_or_percent(given.get("maxSurge", "25%"), total, is_up=True)
    unavailable = resolve_int_or_percent(given.get("maxUnavailable", "25%"), total, is_up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1  # otherwise no progress is possible
    return surge, min(unavailable, total) if total else unavailable


def resolve_int_or_percent(given: Any, total: int, *, is_up: bool) -> int:
    """Resolve `3` or `25%` of a total, rounded up for maxSurge, down for maxUnavailable."""
    if isinstance(given, int):
        return max(0, given)
    percent = int(str(given).rstrip("%") or 0)
    return max(0, (percent * total + (99 if is_up else 0)) // 100)


def new_set_replicas(deployment: Object, sets: Sequence[Object], now_has: int) -> int:
    """Return the size to which the newest set may grow or must shrink."""
    desired = desired_replicas(deployment)
    if not is_rolling(deployment) or now_has >= desired:
        return desired
    surge_left = desired + surge_and_unavailable(deployment)[0] - sum(map(size, sets))
    return now_has + max(0, min(surge_left, desired - now_has))


def rolling_update(deployment: Object, new: Object, old: Sequence[Object]) -> Sizes:
    """Return the next sizes of a rolling update: first the new set grows, then old ones shrink."""
    grown = new_set_replicas(deployment, [new, *old], size(new))
    if grown != size(new):
        return {name_of(new): grown}
    return scale_down_old_sets(deployment, new, old)


def scale_down_old_sets(deployment: Object, new: Object, old: Sequence[Object]) -> Sizes:
    """Shrink old sets: first by unavailable pods, then by surplus ones."""
    min_available = desired_replicas(deployment) - surge_and_unavailable(deployment)[1]
    sizes = {name_of(each): size(each) for each in oldest_first(old)}
    missing_new = size(new) - available(new)
    max_scale_down = size(new) + sum(sizes.values()) - min_available - missing_new
    for each in oldest_first(old):
        unavailable = sizes[name_of(each)] - available(each)
        reduction = max(0, min(max_scale_down, unavailable))
        sizes[name_of(each)] -= reduction
        max_scale_down -= reduction
    surplus = available(new) + sum(map(available, old)) - min_available
    for each in oldest_first(old):
        reduction = max(0, min(surplus, sizes[name_of(each)]))
        sizes[name_of(each)] -= reduction
        surplus -= reduction
    return {
        name_of(each): sizes[name_of(each)] for each in old if sizes[name_of(each)] < size(each)
    }


def is_saturated(deployment: Object, replica_set: Object | None) -> bool:
    """Return whether one set alone has all replicas, and all are available."""
    desired = desired_replicas(deployment)
    return (
        replica_set is not None
        and annotations_of(replica_set).get(DESIRED) == str(desired)
        and size(replica_set) == desired == available(replica_set)
    )


def is_rescaled(deployment: Object, sets: Iterable[Object]) -> bool:
    """Return whether `replicas` changed since the sets were sized."""
    desired = str(desired_replicas(deployment))
    return any(
        size(each) > 0 and annotations_of(each).get(DESIRED, desired) != desired for each in sets
    )


def rescale(deployment: Object, new: Object | None, old: Sequence[Object]) -> Sizes:
    """Spread a new number of replicas over the sets that have pods."""
    every = [*([new] if new is not None else []), *old]
    alive = [each for each in every if size(each) > 0]
    if len(alive) <= 1:
        only = alive[0] if alive else new or (oldest_first(old)[-1] if old else None)
        desired = desired_replicas(deployment)
        return {} if only is None or size(only) == desired else {name_of(only): desired}
    if is_saturated(deployment, new):
        return {name_of(each): 0 for each in old if size(each) > 0}
    if not is_rolling(deployment):
        return {}
    return _in_proportion(deployment, alive)


def _in_proportion(deployment: Object, alive: list[Object]) -> Sizes:
    desired = desired_replicas(deployment)
    allowed = desired + surge_and_unavailable(deployment)[0] if desired > 0 else 0
    to_add = allowed - sum(map(size, alive))
    if to_add == 0:
        return {}
    sign = 1 if to_add > 0 else -1
    # The largest first; of equal ones the newest grows and the oldest shrinks first.
    ranked = sorted(alive, key=lambda e: (-size(e), -sign * created_at(e), key_of(e)))
    sizes: Sizes = {}
    added = 0
    for each in ranked:
        before = int(annotations_of(each).get(MAXIMUM) or sum(map(size, alive)))
        change = round(size(each) * allowed / before) - size(each) if before else 0
        left = to_add - added
        change = min(max(change, 0), left) if sign > 0 else max(min(change, 0), left)
        sizes[name_of(each)] = size(each) + change
        added += change
    first = name_of(ranked[0])
    sizes[first] = max(0, sizes[first] + to_add - added)
    return {
        name_of(each): sizes[name_of(each)] for each in alive if sizes[name_of(each)] != size(each)
    }
