"""The second tenant: what it keeps secret, and how fast the cluster answers it."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tools.attack.api_attacks import BATCH
from tools.attack.http import User


@dataclass
class Latencies:
    """Seconds of requests and of jobs from submission to the start of the pod."""

    requests: list[float] = field(default_factory=list)
    jobs: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


class Victim:
    """Keeps secrets, runs small jobs, and measures."""

    def __init__(self, user: User) -> None:
        self._user = user
        self.canary = f"canary-{secrets.token_hex(16)}"
        self._core = f"/api/v1/namespaces/{user.namespace}"

    async def prepare(self) -> None:
        """Create objects that hold the canary, and a pod that holds it in all places."""
        for plural in ("secrets", "configmaps"):
            key = "stringData" if plural == "secrets" else "data"
            body: Any = {"metadata": {"name": "treasure"}, key: {"key": self.canary}}
            await self._must("POST", f"{self._core}/{plural}", body)
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
        claimed = {"metadata": {"name": "treasure"}, "spec": claim}
        await self._must("POST", f"{self._core}/persistentvolumeclaims", claimed)
        script = "echo $KEY > /claim/key; echo $KEY > /empty/key; echo log $KEY; exec sleep 100000"
        container = {
            "name": "main",
            "image": "host",
            "command": ["sh", "-c", script],
            "env": [
                {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "treasure", "key": "key"}}}
            ],
            "volumeMounts": [
                {"name": "claim", "mountPath": "/claim"},
                {"name": "empty", "mountPath": "/empty"},
                {"name": "secret", "mountPath": "/secret"},
            ],
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        }
        volumes = [
            {"name": "claim", "persistentVolumeClaim": {"claimName": "treasure"}},
            {"name": "empty", "emptyDir": {}},
            {"name": "secret", "secret": {"secretName": "treasure"}},
        ]
        pod = {
            "metadata": {
                "name": "keeper",
                "annotations": {"scheduling.volcano.sh/queue-name": self._user.namespace},
            },
            "spec": {"schedulerName": "volcano", "containers": [container], "volumes": volumes},
        }
        await self._must("POST", f"{self._core}/pods", pod)
        await self._wait_for_canary()

    async def _wait_for_canary(self) -> None:
        deadline = time.monotonic() + 60
        while self.canary not in await self._log("keeper"):
            if time.monotonic() > deadline:
                status = (await self._user.send("GET", f"{self._core}/pods/keeper")).body.decode()
                raise RuntimeError(f"the victim's pod does not start: {status[-2000:]}")
            await asyncio.sleep(0.1)

    async def _log(self, pod: str) -> str:
        return (await self._user.send("GET", f"{self._core}/pods/{pod}/log")).body.decode()

    async def _must(self, method: str, path: str, body: Any) -> None:
        answer = await self._user.send(method, path, body)
        if not answer.ok:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.body[:500]!r}")

    async def is_intact(self) -> bool:
        """Return whether the secret and the pod are as they were."""
        answer = await self._user.send("GET", f"{self._core}/pods/keeper")
        pod = msgspec.json.decode(answer.body) if answer.ok else {}
        statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
        running = "running" in (statuses[0].get("state") or {})
        restarts = statuses[0].get("restartCount", 1)
        found = await self._user.send("GET", f"{self._core}/secrets/treasure")
        return running and restarts == 0 and found.ok and b"labels" not in found.body

    async def measure(self, seconds: float) -> Latencies:
        """Work as usual for some time."""
        seen = Latencies()
        end = time.monotonic() + seconds
        await asyncio.gather(self._requests(seen, end), self._jobs(seen, end))
        return seen

    async def _requests(self, seen: Latencies, end: float) -> None:
        number = 0
        while time.monotonic() < end:
            number += 1
            name = f"note-{number}"
            body = {"metadata": {"name": name}, "data": {"a": "b"}}
            for method, path, sent in (
                ("GET", f"{self._core}/pods", None),
                ("POST", f"{self._core}/configmaps", body),
                ("GET", f"{self._core}/configmaps/{name}", None),
                ("DELETE", f"{self._core}/configmaps/{name}", None),
            ):
                begun = time.monotonic()
                answer = await self._user.send(method, path, sent)
                seen.requests.append(time.monotonic() - begun)
                if not answer.ok:
                    seen.failed.append(f"{method} {path}: {answer.status} {answer.body[:200]!r}")
            await asyncio.sleep(0.1)

    async def _jobs(self, seen: Latencies, end: float) -> None:
        jobs = f"{BATCH}/namespaces/{self._user.namespace}/jobs"
        number = 0
        while time.monotonic() < end:
            number += 1
            name = f"job-{number}"
            container = {
                "name": "main",
                "image": "host",
                "command": ["true"],
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
            }
            template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
            task = {"name": "t", "replicas": 1, "template": template}
            spec = {
                "schedulerName": "volcano",
                "queue": self._user.namespace,
                "minAvailable": 1,
                "tasks": [task],
            }
            begun = time.monotonic()
            body = {"apiVersion": BATCH.removeprefix("/apis/"), "kind": "Job", "spec": spec}
            answer = await self._user.send("POST", jobs, {**body, "metadata": {"name": name}})
            if not answer.ok:
                seen.failed.append(f"job: {answer.status} {answer.body[:200]!r}")
            while answer.ok and not await self._is_bound(f"{name}-t-0"):
                if time.monotonic() - begun > 60:
                    seen.failed.append(f"{name} is not scheduled after 60 s")
                    break
                await asyncio.sleep(0.01)
            seen.jobs.append(time.monotonic() - begun)
            await asyncio.sleep(0.5)
            await self._user.send("DELETE", f"{jobs}/{name}")

    async def _is_bound(self, pod: str) -> bool:
        answer = await self._user.send("GET", f"{self._core}/pods/{pod}")
        return answer.ok and b'"nodeName"' in answer.body
