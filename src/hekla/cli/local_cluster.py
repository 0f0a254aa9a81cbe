"""`hekla up`, `hekla down` and `hekla status`: the cluster on this machine."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
import uvloop

from hekla.api.numa import NONE
from hekla.api.wellknown import POD_NETWORK, POD_USER
from hekla.apiserver.server import AlreadyRunning
from hekla.apiserver.storage.store import StoreError
from hekla.cli import terminal
from hekla.cli.data_dir import MULTI_USER_FILE, PID_FILE, default_data_dir, running_pid
from hekla.kube import kubeconfig
from hekla.kube.resources import NODES, PODS
from hekla.kube.sync_client import SyncClient
from hekla.local import LocalConfig, cluster, pod_user
from hekla.nodeagent import sandbox
from hekla.nodeagent.boundaries import Machine, boundary_gaps
from hekla.nodeagent.cgroups import Cgroups
from hekla.nodeagent.images import ImagesError
from hekla.nodeagent.network import network_support
from hekla.nodeagent.seccomp import runtime_default
from hekla.nodeagent.security_context import PodUser
from hekla.nodeagent.uid_ranges import user_namespace_support
from hekla.units.objects import Object
from hekla.units.private_directory import (
    UMASK,
    InsecureDirectory,
    create_private,
    ensure_private,
)

READY_WITHIN_S = 300.0
DOWN_WITHIN_S = 180.0
NOT_RUNNING = 3
"""Exit code of `status` when no cluster runs, as for system services."""


def up(data_dir: Path | None, *, detach: bool, **options: Any) -> None:
    where = data_dir or default_data_dir()
    if detach:
        _detach(where, options)
        return
    agent = not options.pop("no_agent")
    config = LocalConfig(where, agent=agent, **options)
    _check_cpu_policies(config)
    _check_multi_user(config)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    os.umask(UMASK)
    try:
        uvloop.run(_up(config))
    except (AlreadyRunning, ImagesError, StoreError, OSError) as error:
        raise click.ClickException(str(error)) from error


def _check_cpu_policies(config: LocalConfig) -> None:
    if config.cpu_manager_policy == NONE:
        if config.topology_manager_policy != NONE:
            raise click.ClickException(
                "--topology-manager-policy applies to exclusive CPUs: "
                "add --cpu-manager-policy static"
            )
    elif not Cgroups().can_pin():
        raise click.ClickException(
            "--cpu-manager-policy static needs write access to the cpuset cgroup: "
            "run as root, or omit the flag"
        )


def _check_multi_user(config: LocalConfig) -> None:
    """Refuse --multi-user where this machine cannot keep the pods of users apart."""
    if not config.multi_user or not config.agent:
        return
    # A shared network does not prevent --multi-user: `hekla status` prints it as a gap.
    machine = _machine(pod_user(config.pod_user), pod_network=True)
    gaps = boundary_gaps(machine)
    if gaps:
        raise click.ClickException(
            "--multi-user is refused, because this machine would not keep users apart:\n"
            + "\n".join(f"  - {gap}" for gap in gaps)
        )


async def _up(config: LocalConfig) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stopping.set)
    async with cluster(config) as server:
        _mark_multi_user(config)
        (config.data_dir / PID_FILE).write_text(str(os.getpid()))
        # Start-up objects live as long as the cluster: exclude them from garbage collection.
        gc.collect()
        gc.freeze()
        terminal.echo(_welcome(server.address, server.kubeconfig))
        await stopping.wait()
        terminal.echo("stopping the pods")


def _mark_multi_user(config: LocalConfig) -> None:
    """Tell `hekla user` whether others may be let in."""
    marker = config.data_dir / MULTI_USER_FILE
    if config.multi_user:
        marker.touch(mode=0o600)
    else:
        marker.unlink(missing_ok=True)


def _welcome(address: str, path: Path) -> str:
    return (
        f"hekla is up at {address}\n"
        f"  export KUBECONFIG={path}\n"
        "  kubectl get nodes          # or any other Kubernetes client\n"
        "  hekla run JOB.yaml         # run a job and see its output\n"
        "  hekla down                 # stop it"
    )


def _detach(where: Path, options: dict[str, Any]) -> None:
    """Start `hekla up` as a separate process and wait until it serves."""
    try:
        ensure_private(where)
    except InsecureDirectory as error:
        raise click.ClickException(str(error)) from error
    words = [sys.executable, "-m", "hekla.cli.main", "up", "--data-dir", str(where)]
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value:
            words += [flag, str(value)]
    log = where / "hekla.log"
    create_private(log)
    with log.open("ab") as output:
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
            raise click.ClickException("".join(last) or f"the cluster did not start; see {log}")
        if running_pid(where) == child.pid:
            config = kubeconfig.load(where / "kubeconfig")
            terminal.echo(_welcome(config.server, where / "kubeconfig"))
            return
        time.sleep(0.02)
    raise click.ClickException(f"the cluster is not ready after {READY_WITHIN_S:.0f} s; see {log}")


def down(data_dir: Path | None) -> None:
    where = data_dir or default_data_dir()
    pid = running_pid(where)
    if pid is None:
        terminal.echo(f"no cluster is running in {where}")
        return
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + DOWN_WITHIN_S
    while running_pid(where) is not None:
        if time.monotonic() > deadline:
            raise click.ClickException(
                f"process {pid} is still stopping its pods after {DOWN_WITHIN_S:.0f} s; "
                "wait, or kill it: the next `hekla up` adopts its running pods"
            )
        time.sleep(0.02)
    terminal.echo("hekla is down")


def _running_machine(nodes: list[Object]) -> Machine:
    """Return what separates the pods of the running cluster."""
    notes = next(
        (
            found
            for node in nodes
            if POD_USER in (found := node["metadata"].get("annotations") or {})
        ),
        {},
    )
    return _machine(
        "namespace" if notes.get(POD_USER) == "namespace" else "owner",
        pod_network=notes.get(POD_NETWORK) == "bridge",
    )


def _machine(user: PodUser, *, pod_network: bool) -> Machine:
    isolation, network = sandbox.isolation_support(), network_support()
    return Machine(
        pod_user=user,
        user_reason=user_namespace_support(),
        namespaces=isolation.namespaces,
        namespaces_reason=isolation.reason,
        cgroups=Cgroups().version,
        seccomp=bool(runtime_default()),
        pod_network=pod_network,
        network_reason="" if network.bridge else network.reason,
    )


def status(data_dir: Path | None) -> int:
    where = data_dir or default_data_dir()
    pid = running_pid(where)
    if pid is None:
        terminal.echo(f"no cluster is running in {where}; start one with `hekla up`")
        return NOT_RUNNING
    config = kubeconfig.load(where / "kubeconfig")
    with SyncClient(config) as client:
        pods, nodes = client.list(PODS).items, client.list(NODES).items
    phases = Counter((pod.get("status") or {}).get("phase", "Unknown") for pod in pods)
    terminal.echo(f"hekla is up at {config.server} (process {pid})")
    terminal.echo(f"  data      {where}")
    terminal.echo(f"  nodes     {len(nodes)}")
    terminal.echo("  pods      " + (", ".join(f"{n} {p}" for p, n in phases.items()) or "none"))
    support, version = sandbox.isolation_support(), Cgroups().version
    isolation = "namespaces: volumes at their mount paths, pod host names, no leftover processes"
    if support.isolation == "user":
        isolation += " (user namespaces, without root)"
    if not support.namespaces:
        isolation = f"none ({support.reason}): pods see the whole machine"
    limits = f"cgroups v{version}: memory, CPU and process limits are enforced"
    if not version:
        limits = "none: this user may not write cgroups"
    terminal.echo(f"  isolation {isolation}")
    terminal.echo(f"  limits    {limits}")
    machine = _running_machine(nodes)
    own = "one per pod: all pods may listen on the same port"
    shared = f"shared with the machine ({machine.network_reason or '--pod-network host'})"
    terminal.echo(f"  network   {own if machine.pod_network else shared}")
    users = "of their namespace, who own nothing else on this machine"
    terminal.echo(
        f"  users     {users if machine.pod_user == 'namespace' else 'the one of `hekla up`'}"
    )
    for gap in boundary_gaps(machine):
        terminal.echo(f"  not kept apart: {gap}")
    return 0
