"""Authentication and authorization by the API server: TokenReview and SubjectAccessReview.

Answers are cached for a short time, as kube-apiserver does for its webhooks. The cache holds hashes
of tokens, never tokens.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from hekla.kube.client import Client
from hekla.kube.errors import KubeError
from hekla.kube.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from hekla.units.clock import Clock
from hekla.units.objects import Object
from hekla.web.authorization import Decision

log = logging.getLogger("hekla.kube")

ALLOWED_FOR_S: Final = 60.0
REFUSED_FOR_S: Final = 10.0
MAX_CACHED: Final = 1024
MAX_PENDING: Final = 16


class TokenAuthorizer:
    """Decides whether the holder of a token may read a path.

    `resource_of` returns the resource attributes of a path; without it, or if it returns None, the
    path is no resource.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        resource_of: Callable[[str], Object | None] = lambda _: None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._resource_of = resource_of
        self._cache: OrderedDict[tuple[bytes, str, str], tuple[float, Decision]] = OrderedDict()
        self._pending = 0

    async def __call__(self, token: str, verb: str, path: str) -> Decision:
        key = hashlib.sha256(token.encode()).digest(), verb, path
        cached = self._cache.get(key)
        if cached is not None and self._clock.now() < cached[0]:
            return cached[1]
        if self._pending >= MAX_PENDING:
            return Decision(429, "too many requests wait for the API server; try again")
        self._pending += 1
        try:
            decision = await self._review(token, verb, path)
        except KubeError as error:
            log.warning("a token for %s cannot be reviewed: %s", path, error)
            return Decision(503, "the API server cannot review the token; try again")
        finally:
            self._pending -= 1
        self._remember(key, decision)
        return decision

    def _remember(self, key: tuple[bytes, str, str], decision: Decision) -> None:
        ttl_s = ALLOWED_FOR_S if decision.status == 200 else REFUSED_FOR_S
        self._cache[key] = self._clock.now() + ttl_s, decision
        self._cache.move_to_end(key)
        while len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)

    async def _review(self, token: str, verb: str, path: str) -> Decision:
        answer = await self._client.create(TOKEN_REVIEWS, {"spec": {"token": token}})
        status = answer.get("status") or {}
        if not status.get("authenticated"):
            return Decision(401, "the token is not valid in this cluster")
        user: Mapping[str, Any] = status.get("user") or {}
        spec = {
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups") or [],
            "extra": user.get("extra") or {},
        }
        resource = self._resource_of(path)
        if resource is None:
            spec["nonResourceAttributes"] = {"verb": verb, "path": path}
        else:
            spec["resourceAttributes"] = resource
        answer = await self._client.create(SUBJECT_ACCESS_REVIEWS, {"spec": spec})
        if (answer.get("status") or {}).get("allowed"):
            return Decision(200)
        if resource is not None:
            where = (
                f'namespace "{resource["namespace"]}"' if resource["namespace"] else "the cluster"
            )
            what = f"{resource['verb']} {resource['resource']}.{resource['group']} in {where}"
            return Decision(403, f'user "{spec["user"]}" cannot {what}')
        return Decision(
            403,
            f'user "{spec["user"]}" cannot {verb} path "{path}"; '
            "bind it to the ClusterRole hekla-metrics-reader",
        )
