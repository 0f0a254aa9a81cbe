"""What pod workers read from and write to the API server."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Literal

from hekla.kube.client import Client
from hekla.kube.errors import Conflict, KubeError, NotFound
from hekla.kube.recorder import EventRecorder, reference
from hekla.kube.resources import CONFIGMAPS, PODS, RUNTIME_CLASSES, SECRETS
from hekla.nodeagent.environment import MissingReference, Sources
from hekla.nodeagent.volumes import decode_config_map, decode_secret, references
from hekla.units.clock import Clock
from hekla.units.objects import Object

log = logging.getLogger("hekla.nodeagent")

REPORT_RETRY_S = 1.0


@contextlib.contextmanager
def _reading(what: str) -> Iterator[None]:
    """Raise MissingReference, with which a container waits, if the server does not answer."""
    try:
        yield
    except KubeError as error:
        raise MissingReference(f"{what} cannot be read: {error}; it is tried again") from error


class PodApi:
    """The API requests of pod workers."""

    def __init__(self, client: Client, recorder: EventRecorder, clock: Clock) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock

    async def report_status(self, pod: Object, status: Object) -> None:
        """Write a pod's status; retry until the server accepts it or the pod is gone."""
        metadata = pod["metadata"]
        while True:
            try:
                await self._client.patch_status(
                    PODS, metadata["name"], status, namespace=metadata["namespace"]
                )
            except NotFound:
                return
            except KubeError as error:
                log.warning("status of pod %s: %s; trying again", metadata["name"], error)
                await self._clock.sleep(REPORT_RETRY_S)
            else:
                return

    async def fetch_sources(self, pod: Object) -> Sources:
        """Read the config maps and secrets that a pod refers to."""
        namespace = pod["metadata"]["namespace"]
        map_names, secret_names = references(pod)
        maps: dict[str, dict[str, str] | None] = {}
        for name in map_names:
            with _reading(f"ConfigMap {name!r}"):
                found = await self._client.find(CONFIGMAPS, name, namespace=namespace)
            maps[name] = decode_config_map(found)
        secrets: dict[str, dict[str, str] | None] = {}
        for name in secret_names:
            with _reading(f"Secret {name!r}"):
                found = await self._client.find(SECRETS, name, namespace=namespace)
            secrets[name] = decode_secret(found)
        return Sources(maps, secrets)

    async def fetch_pull_secrets(self, pod: Object, names: list[str]) -> list[Object]:
        """Return those of a pod's pull secrets that exist."""
        namespace = pod["metadata"]["namespace"]
        found: list[Object] = []
        for name in names:
            secret = await self._client.find(SECRETS, name, namespace=namespace)
            if secret is not None:
                found.append(secret)
        return found

    async def fetch_handler(self, name: str) -> str | None:
        """Return the handler of a RuntimeClass; None if there is no such class."""
        with _reading(f"RuntimeClass {name!r}"):
            found = await self._client.find(RUNTIME_CLASSES, name)
        return None if found is None else str(found["handler"])

    async def finish_deletion(self, pod: Object) -> None:
        """Delete the object of a terminating pod that has ended here; retry until it is gone."""
        metadata = pod["metadata"]
        while "deletionTimestamp" in metadata:
            try:
                await self._client.delete(
                    PODS,
                    metadata["name"],
                    namespace=metadata["namespace"],
                    grace_period_s=0,
                    uid=metadata["uid"],
                    missing_ok=True,
                )
            except Conflict:
                return  # another pod has the name
            except KubeError as error:
                log.warning("deletion of pod %s: %s; trying again", metadata["name"], error)
                await self._clock.sleep(REPORT_RETRY_S)
            else:
                return

    def emit_event(
        self, pod: Object, kind: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        """Emit an Event on a pod."""
        self._recorder.event(reference(PODS, pod), kind, reason, message)
