"""`python -m tools.attack`: a hostile tenant against a cluster with two users, for some minutes.

The attacker has a token with the role `edit` in its namespace, and pods. It tries to read the other
tenant's data, to gain rights, and to slow the other down. The result is a table; the exit code is 1
if something was lost. Everything happens on loopback, in a temporary directory, within bounds of
requests and time.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
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
from tools.attack.victim import Latencies, Victim, percentile

ATTACKER, VICTIM = "mallory", "alice"
CONCURRENT = 8
MAX_REQUESTS = 200_000
QUIET_S = 20.0
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


def _hekla(data_dir: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "hekla.cli.main", *words, "--data-dir", str(data_dir)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise click.ClickException(f"hekla {' '.join(words)}: {done.stderr}")
    return done.stdout


def _add_user(data_dir: Path, name: str) -> Path:
    queue = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1, "capability": {"cpu": "1", "memory": "4Gi"}},
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "loot", "namespace": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    from hekla.kube import kubeconfig
    from hekla.kube.resources import PERSISTENT_VOLUME_CLAIMS, QUEUES
    from hekla.kube.sync_client import SyncClient

    with SyncClient(kubeconfig.load(data_dir / "kubeconfig")) as admin:
        admin.create(QUEUES, queue)
        path = data_dir.parent / f"{name}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(_hekla(data_dir, "user", "add", name, "--queue", name))
        admin.create(PERSISTENT_VOLUME_CLAIMS, claim)
    return path


async def attack(data_dir: Path, seconds: float, seed: int) -> tuple[Result, Latencies, Latencies]:
    """Run the attack against a cluster; return the result and the latencies, quiet and attacked."""
    os.environ["HEKLA_ATTACK_CANARY"] = "canary-of-the-administrator"
    users = [_add_user(data_dir, name) for name in (ATTACKER, VICTIM)]
    async with User(users[0]) as attacker, User(users[1]) as second:
        victim = Victim(second)
        await victim.prepare()
        quiet = await victim.measure(min(QUIET_S, seconds))
        answer = await second.send("GET", "/api/v1/nodes")
        node = msgspec.json.decode(answer.body)["items"][0]["metadata"]["name"]
        admin = (data_dir / "pki" / "admin.token").read_bytes().strip()
        secrets = [victim.canary.encode(), admin, second.token.encode(), _shadow()]
        target = Target(VICTIM, node)
        run = Run(attacker, target, [secret for secret in secrets if secret], seed)
        end = time.monotonic() + seconds
        measuring = asyncio.create_task(victim.measure(seconds))
        await asyncio.gather(
            *(run.requests(end) for _ in range(CONCURRENT)),
            run.pods(
                end,
                pod_attacks.scripts(str(data_dir)),
                pod_attacks.refused(VICTIM, node),
            ),
        )
        attacked = await measuring
        if not await victim.is_intact():
            run.result.lost.append("the victim's pod or secret was changed")
        if failed := attacked.failed:
            run.result.lost.append(f"{len(failed)} requests of the victim failed: {failed[:3]}")
    return run.result, quiet, attacked


def _shadow() -> bytes:
    try:
        line = Path("/etc/shadow").read_bytes().splitlines()[0]
    except (OSError, IndexError):
        return b""
    return line if line.startswith(b"root:") and len(line) > 8 else b""


def report(result: Result, quiet: Latencies, attacked: Latencies) -> str:
    """Return the result as a Markdown table."""
    lines = ["| attack | tried | refused | no answer | 5xx |", "|---|---:|---:|---:|---:|"]
    for name in sorted(result.tried):
        lines.append(
            f"| {name} | {result.tried[name]} | {result.refused[name]} | "
            f"{result.unanswered[name]} | {result.errors[name]} |"
        )
    lines += ["", "| second tenant | quiet P50 | quiet P99 | attacked P50 | attacked P99 |"]
    lines += ["|---|---:|---:|---:|---:|"]
    for name in ("requests", "jobs"):
        before, after = getattr(quiet, name), getattr(attacked, name)
        cells = [percentile(values, share) for values in (before, after) for share in (0.5, 0.99)]
        shown = " | ".join(f"{1000 * cell:.0f} ms" for cell in cells)
        lines.append(f"| {name} ({len(before)}, {len(after)}) | {shown} |")
    lines += ["", f"lost: {len(result.lost)}"]
    lines += [f"- {each}" for each in result.lost[:50]]
    return "\n".join(lines)


@click.command()
@click.option("--seconds", type=float, default=600.0, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
def main(seconds: float, seed: int) -> None:
    """Attack a cluster of its own."""
    base = Path(tempfile.mkdtemp(prefix="hekla-attack-"))
    data_dir = base / "data"
    os.environ["HEKLA_ATTACK_CANARY"] = "canary-of-the-administrator"
    _hekla(data_dir, "up", "--multi-user", "--detach", "--simulated-gpus", "2")
    try:
        result, quiet, attacked = asyncio.run(attack(data_dir, seconds, seed))
        click.echo(report(result, quiet, attacked))
        _hekla(data_dir, "status")
    finally:
        _hekla(data_dir, "down")
        shutil.rmtree(base, ignore_errors=True)
    sys.exit(bool(result.lost))


if __name__ == "__main__":
    main()
