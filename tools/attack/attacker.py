"""The hostile tenant: sends requests and runs pods for some time, and judges the answers."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import click
import msgspec

from tools.attack import pod_attacks
from tools.attack.api_attacks import ATTEMPTS, Attempt, Target
from tools.attack.http import Answer, User
from tools.attack.pod_attacks import ESCAPED, HostilePod

CONCURRENT = 8
MAX_REQUESTS = 200_000
POD_WAIT_S = 30.0


@dataclass
class Result:
    """What happened, by the name of the attack."""

    tried: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    unanswered: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    """Answers 500 and above."""


class Run:
    """One run of the attacker."""

    def __init__(self, attacker: User, target: Target, secrets: list[bytes], seed: int) -> None:
        self._user = attacker
        self._target = target
        self._secrets = secrets
        self._draw = random.Random(seed)
        self._budget = MAX_REQUESTS
        self.result = Result()

    async def requests(self, end: float) -> None:
        """Send requests until the time is over."""
        while time.monotonic() < end and self._budget > 0:
            self._budget -= 1
            attempt = self._draw.choice(ATTEMPTS)
            answers = await attempt.act(self._user, self._target, self._draw)
            self._judge(attempt, answers)

    def _judge(self, attempt: Attempt, answers: list[Answer]) -> None:
        self.result.tried[attempt.name] += 1
        if answers and all(not answer.ok for answer in answers):
            self.result.refused[attempt.name] += 1
        elif attempt.refused:
            self._lose(attempt.name, "was accepted", answers[-1].body)
        for answer in answers:
            self._look_for_secrets(attempt.name, answer.body)
            if answer.status == 0:
                self.result.unanswered[attempt.name] += 1
            if answer.status >= 500 and answer.status != 504:
                self.result.errors[attempt.name] += 1
                if self.result.errors[attempt.name] == 1:
                    click.echo(f"{attempt.name}: {answer.status} {answer.body[:300]!r}", err=True)

    def _lose(self, name: str, what: str, body: bytes) -> None:
        self.result.lost.append(f"{name}: {what}: {body[:300]!r}")

    def _look_for_secrets(self, name: str, body: bytes) -> None:
        for secret in self._secrets:
            if secret in body:
                self._lose(name, f"{secret[:10]!r}… was read", body)

    async def pods(self, end: float, admitted: list[HostilePod], refused: list[HostilePod]) -> None:
        """Run hostile pods until the time is over."""
        everything = [(pod, True) for pod in admitted] + [(pod, False) for pod in refused]
        for pod, must_run in itertools.cycle(everything):
            if time.monotonic() > end:
                return
            await self._run_pod(pod, must_run=must_run)

    async def _run_pod(self, pod: HostilePod, *, must_run: bool) -> None:
        name = f"pod: {pod.name}"
        body = pod_attacks.manifest(pod, self._user.namespace, self._draw)
        pods = f"/api/v1/namespaces/{self._user.namespace}/pods"
        answer = await self._user.send("POST", pods, body)
        self.result.tried[name] += 1
        if not answer.ok:
            self.result.refused[name] += 1
            if must_run:
                self._lose(name, "an ordinary pod was refused", answer.body)
            return
        path = f"{pods}/{body['metadata']['name']}"
        phase = await self._finished(path)
        log = (await self._user.send("GET", f"{path}/log?limitBytes=3000000")).body
        self._look_for_secrets(name, log)
        if ESCAPED.encode() in log:
            self._lose(name, "escaped", log[-1000:])
        if phase == "Failed":
            self.result.refused[name] += 1
        await self._user.send("DELETE", f"{path}?gracePeriodSeconds=0")

    async def _finished(self, path: str) -> str:
        deadline = time.monotonic() + POD_WAIT_S
        phase = ""
        while time.monotonic() < deadline:
            answer = await self._user.send("GET", path)
            if answer.status == 404:
                return "Failed"
            if answer.ok:
                status = msgspec.json.decode(answer.body).get("status") or {}
                phase = str(status.get("phase", ""))
                waiting = str(status.get("containerStatuses", ""))
                if phase in ("Succeeded", "Failed") or "CreateContainerConfigError" in waiting:
                    break
            await asyncio.sleep(0.2)
        return phase


def run_attacker(
    config: Path, target: Target, secrets: list[bytes], seconds: float, seed: int, data_dir: str
) -> Result:
    """Attack until the time is over."""

    async def act() -> Result:
        async with User(config) as attacker:
            run = Run(attacker, target, secrets, seed)
            end = time.monotonic() + seconds
            admitted = pod_attacks.scripts(data_dir)
            refused = pod_attacks.refused(target.victim, target.node)
            await asyncio.gather(
                *(run.requests(end) for _ in range(CONCURRENT)), run.pods(end, admitted, refused)
            )
            return run.result

    return asyncio.run(act())
