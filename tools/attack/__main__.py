"""`python -m tools.attack`: a hostile tenant against a cluster with two users, for some minutes.

The attacker has a token with the role `edit` in its namespace, and pods. It tries to read the other
tenant's data, to gain rights, and to slow the other down. The result is a table; the exit code is 1
if something was lost. Everything happens on loopback, in a temporary directory, within bounds of
requests and time.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import click
import msgspec

from tools.attack.api_attacks import Target
from tools.attack.attacker import Result, run_attacker
from tools.attack.http import User
from tools.attack.victim import Latencies, Victim, percentile

ATTACKER, VICTIM = "mallory", "alice"
QUIET_S = 20.0


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
    async with User(users[1]) as second:
        victim = Victim(second)
        await victim.prepare()
        quiet = await victim.measure(min(QUIET_S, seconds))
        answer = await second.send("GET", "/api/v1/nodes")
        node = msgspec.json.decode(answer.body)["items"][0]["metadata"]["name"]
        admin = (data_dir / "pki" / "admin.token").read_bytes().strip()
        secrets = [victim.canary.encode(), admin, second.token.encode(), _shadow()]
        # A process of its own: building bodies of megabytes must not delay the measurement.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
            attacking = asyncio.get_running_loop().run_in_executor(
                executor,
                run_attacker,
                users[0],
                Target(VICTIM, node),
                [secret for secret in secrets if secret],
                seconds,
                seed,
                str(data_dir),
            )
            attacked = await victim.measure(seconds)
            result = await attacking
        if not await victim.is_intact():
            result.lost.append("the victim's pod or secret was changed")
        if failed := attacked.failed:
            result.lost.append(f"{len(failed)} requests of the victim failed: {failed[:3]}")
    return result, quiet, attacked


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


def _stalls(log: str) -> str:
    """Return what held the server's loop, by the innermost frame, most frequent first."""
    held = Counter(
        part.split("\n\n")[0].rstrip().rpartition("  File ")[2].replace("\n", " ")
        for part in log.split("the event loop is held for more than")[1:]
    )
    lines = [f"{count} x {frame.strip()}" for frame, count in held.most_common(10)]
    return "\n".join(["", f"logged stalls of the event loop: {held.total()}", *lines])


@click.command()
@click.option("--seconds", type=float, default=600.0, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
def main(seconds: float, seed: int) -> None:
    """Attack a cluster of its own."""
    base = Path(tempfile.mkdtemp(prefix="hekla-attack-"))
    data_dir = base / "data"
    os.environ["HEKLA_ATTACK_CANARY"] = "canary-of-the-administrator"
    _hekla(data_dir, "up", "--port", "0", "--multi-user", "--detach", "--simulated-gpus", "2")
    try:
        result, quiet, attacked = asyncio.run(attack(data_dir, seconds, seed))
        click.echo(report(result, quiet, attacked))
        click.echo(_stalls((data_dir / "hekla.log").read_text(errors="replace")))
        _hekla(data_dir, "status")
    finally:
        _hekla(data_dir, "down")
        shutil.rmtree(base, ignore_errors=True)
    sys.exit(bool(result.lost))


if __name__ == "__main__":
    main()
