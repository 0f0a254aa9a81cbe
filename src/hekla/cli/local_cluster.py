"""`hekla up`, `hekla down` and `hekla status`: the cluster on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import click
import uvloop

from hekla.api.numa import NONE
from hekla.api.wellknown import POD_NETWORK, POD_USER, SYSTEM_NAMESPACE
from hekla.apiserver.server import AlreadyRunning
from hekla.apiserver.storage.store import StoreError
from hekla.cli import images, interrupts, leftovers, service, terminal
from hekla.cli.service_unit import up_flags
from hekla.cli.vcctl.scheduler_config import problems, read_states
from hekla.images.errors import ImageError
from hekla.kube import kubeconfig
from hekla.kube.data_dir import (
    KUBECONFIG_FILE,
    MULTI_USER_FILE,
    PID_FILE,
    STOP_FILE,
    data_dir_flag,
    default_data_dir,
    running_pid,
)
from hekla.kube.errors import KubeError
from hekla.kube.resources import NODES, PODS
from hekla.kube.sync_client import SyncClient
from hekla.local import LocalConfig, Shutdown, cluster, pod_user
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
    create_private,
    ensure_private,
)
from hekla.units.quantity import parse_quantity

DEFAULT_PORT = 7443
READY_WITHIN_S = 300.0
SILENT_S = 1.0
"""A stop that takes longer names the pods for which it waits."""
DOWN_WITHIN_S = 180.0
LEFT_OUT = "cannot be loaded and is left out"
"""How the log names a plugin that could not be loaded."""
NOT_RUNNING = 3
"""Exit code of `status` when no cluster runs, as for system services."""


def up(data_dir: Path | None, *, detach: bool, **options: Any) -> None:
    where = data_dir or default_data_dir()
    try:
        ensure_private(where)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    if detach:
        _detach(where, options, data_dir_flag(data_dir))
        return
    store_bytes = parse_quantity(options.pop("image_store_size")).value()
    agent, given_port = not options.pop("no_agent"), options.pop("port")
    config = LocalConfig(
        where,
        agent=agent,
        port=_usual_port(where) if given_port is None else given_port,
        else_any_port=given_port is None,
        image_store_bytes=store_bytes,
        **options,
    )
    _check_cpu_policies(config)
    _check_multi_user(config)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    os.umask(UMASK)
    try:
        uvloop.run(_up(config, data_dir_flag(data_dir)))
    except (AlreadyRunning, ImagesError, ImageError, StoreError, OSError) as error:
        raise click.ClickException(str(error)) from error


def _usual_port(where: Path) -> int:
    """Return the port of the last start, so that kubeconfigs stay valid."""
    try:
        return urlsplit(kubeconfig.load(where / "kubeconfig").server).port or DEFAULT_PORT
    except (KubeError, ValueError):
        return DEFAULT_PORT


def _port_note(usual: int, address: str, *, is_new: bool) -> str:
    """Return why the cluster has another port than usual; empty if it has not."""
    if urlsplit(address).port == usual:
        return ""
    copies = "; kubeconfigs that were copied from this cluster need the new address"
    return (
        f"port {usual} is taken by another program, so the API server is at {address}, which it "
        f"will keep{'' if is_new else copies}"
    )


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


async def _up(config: LocalConfig, flag: str) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stopping.set)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup sets it
        loop.add_signal_handler(signal.SIGHUP, _on_hangup, stopping)
    (config.data_dir / STOP_FILE).unlink(missing_ok=True)
    shutdown = Shutdown(aborts=False)
    is_new = not (config.data_dir / KUBECONFIG_FILE).exists()
    async with cluster(config, shutdown) as server:
        _mark_multi_user(config)
        (config.data_dir / PID_FILE).write_text(str(os.getpid()))
        # Start-up objects live as long as the cluster: exclude them from garbage collection.
        gc.collect()
        gc.freeze()
        if config.else_any_port and (
            note := _port_note(config.port, server.address, is_new=is_new)
        ):
            terminal.echo(note, err=True)
        terminal.echo(_welcome(server.address, server.kubeconfig, flag))
        service.notify("READY=1")
        await _until_stopped(config.data_dir / STOP_FILE, stopping, shutdown)
        naming = asyncio.create_task(_name_stopping_pods(config.data_dir))
    naming.cancel()
    _forget_pid(config.data_dir / PID_FILE)


async def _name_stopping_pods(where: Path) -> None:
    await asyncio.sleep(SILENT_S)
    if note := await asyncio.to_thread(leftovers.stopping_note, where):
        terminal.echo(note)


def _on_hangup(stopping: asyncio.Event) -> None:
    interrupts.discard_unseen_output()
    stopping.set()


def _forget_pid(path: Path) -> None:
    """Remove the pid file of this process: one that stays is that of a cluster that crashed."""
    with contextlib.suppress(OSError):
        if path.read_text() == str(os.getpid()):
            path.unlink()


async def _until_stopped(stop_file: Path, stopping: asyncio.Event, shutdown: Shutdown) -> None:
    """Wait for a signal, and with `wait` until all pods have finished or another signal comes."""
    await stopping.wait()
    service.notify("STOPPING=1")
    manner = _manner(stop_file)
    if manner == "wait":
        terminal.echo("waiting for the running pods; no more pods start")
        stopping.clear()
        finished = asyncio.ensure_future(shutdown.finish_pods())
        signalled = asyncio.ensure_future(stopping.wait())
        await asyncio.wait((finished, signalled), return_when=asyncio.FIRST_COMPLETED)
        for task in (finished, signalled):
            task.cancel()
        manner = _manner(stop_file)
    shutdown.aborts = manner == "abort"
    terminal.echo(
        "ending the pods" if shutdown.aborts else "stopping the pods until the next `hekla up`"
    )


def _manner(stop_file: Path) -> str:
    """Return how to stop: as `hekla down` wrote it, once."""
    try:
        manner = stop_file.read_text()
    except OSError:
        return "suspend"
    stop_file.unlink(missing_ok=True)
    return manner


def _mark_multi_user(config: LocalConfig) -> None:
    """Tell `hekla user` whether others may be let in."""
    marker = config.data_dir / MULTI_USER_FILE
    if config.multi_user:
        marker.touch(mode=0o600)
    else:
        marker.unlink(missing_ok=True)


def _welcome(address: str, path: Path, flag: str) -> str:
    run, down = f"hekla run{flag} JOB.yaml", f"hekla down{flag}"
    width = max(26, len(run), len(down))
    return (
        f"hekla is up at {address}\n"
        f"  export KUBECONFIG={path}\n"
        f"  {'kubectl get nodes':{width}} # or any other Kubernetes client\n"
        f"  {run:{width}} # run a job and see its output\n"
        f"  {down:{width}} # stop it"
    )


def _detach(where: Path, options: dict[str, Any], flag: str) -> None:
    """Start `hekla up` as a separate process and wait until it serves."""
    log = where / "hekla.log"
    words = [sys.executable, "-m", "hekla.cli.main", "up", "--data-dir", str(where)]
    words += up_flags(options)
    create_private(log)
    usual, is_new = _usual_port(where), not (where / KUBECONFIG_FILE).exists()
    logged_before = log.stat().st_size
    with log.open("ab") as output:
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            last = "".join(log.read_text(errors="replace").strip().splitlines()[-1:])
            reason = last.removeprefix("Error: ")  # click prints it again
            raise click.ClickException(reason or f"the cluster did not start; see {log}")
        if running_pid(where) == child.pid:
            config = kubeconfig.load(where / "kubeconfig")
            if options["port"] is None and (
                note := _port_note(usual, config.server, is_new=is_new)
            ):
                terminal.echo(note, err=True)
            for line in _left_out(log.read_bytes()[logged_before:].decode(errors="replace")):
                terminal.echo(f"{line}; see {log}", err=True)
            terminal.echo(_welcome(config.server, where / "kubeconfig", flag))
            return
        time.sleep(0.02)
    raise click.ClickException(f"the cluster is not ready after {READY_WITHIN_S:.0f} s; see {log}")


def _left_out(log: str) -> Iterator[str]:
    """Yield what the log says about plugins that could not be loaded, with the error of each."""
    subject = ""
    for line in log.splitlines():
        if line.endswith(LEFT_OUT):
            subject = line.partition("hekla.scheduler: ")[2]
        elif subject and line and not line.startswith((" ", "Traceback")):
            yield f"{subject}: {line}"
            subject = ""


def down(data_dir: Path | None, manner: Literal["suspend", "wait", "abort"] = "suspend") -> None:
    where = data_dir or default_data_dir()
    pid = running_pid(where)
    if pid is None:
        _down_without_a_server(where, manner, data_dir_flag(data_dir))
        return
    stop_file = where / STOP_FILE
    create_private(stop_file)
    stop_file.write_text(manner)
    os.kill(pid, signal.SIGTERM)
    if manner == "wait":
        terminal.echo(
            "waiting for the running pods; no more pods start. "
            f"Another `hekla down{data_dir_flag(data_dir)}` stops them at once"
        )
    deadline = time.monotonic() + DOWN_WITHIN_S
    said = time.monotonic()
    while running_pid(where) is not None:
        if manner != "wait" and said and time.monotonic() - said > SILENT_S:
            said = 0
            if note := leftovers.stopping_note(where):
                terminal.echo(note)
        if manner != "wait" and time.monotonic() > deadline:
            raise click.ClickException(
                f"process {pid} is still stopping its pods after {DOWN_WITHIN_S:.0f} s; "
                f"wait, or kill it: the next `hekla up{data_dir_flag(data_dir)}` adopts its "
                "running pods"
            )
        time.sleep(0.02)
    terminal.echo("hekla is down")


def _down_without_a_server(where: Path, manner: str, flag: str) -> None:
    if manner == "abort" and leftovers.has_crashed(where):
        ended = leftovers.abort(where)
        if ended is None:
            raise click.ClickException(f"a cluster starts in {where} now; try again")
        terminal.echo(
            f"the cluster in {where} had crashed; pods that ran on and were ended: {ended}"
        )
        return
    note = leftovers.crash_note(where, flag)
    if note and leftovers.of(where):
        raise click.ClickException(note)
    terminal.echo(note or f"no cluster is running in {where}")
    if note:
        leftovers.abort(where)  # nothing runs: only the mark of the crash is removed


def _indented(text: str, columns: int) -> str:
    """Indent all lines but the first."""
    first, *others = text.rstrip().splitlines()
    return "\n".join([first, *(" " * columns + line for line in others)])


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
        flag = data_dir_flag(data_dir)
        text = f"no cluster is running in {where}; start one with `hekla up{flag}`"
        terminal.echo(leftovers.crash_note(where, flag) or text)
        return NOT_RUNNING
    config = kubeconfig.load(where / "kubeconfig")
    with SyncClient(config) as client:
        pods, nodes = client.list(PODS).items, client.list(NODES).items
        states = read_states(client, SYSTEM_NAMESPACE)
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
    for name, text in images.runtimes(where, machine.pod_user).items():
        terminal.echo(f"  runtime   {name}: {text}")
    for gap in boundary_gaps(machine):
        terminal.echo(f"  not kept apart: {gap}")
    for name in sorted({name for state in states.values() for name in state.custom_plugins}):
        terminal.echo(f"  plugin    {name}")
    for problem in problems(states):
        terminal.echo(_indented(f"  scheduler {problem}", len("  scheduler ")))
    return 0
