"""The schedulers that are compared, each as command lines.

A command may use {kubeconfig}, {conf} (volcano-scheduler.conf, the same for all), {port} (a free
one, another at each use) and {directory}. What a newcomer gets wrong: the words are split as a
shell would, but no shell runs them.
"""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from tools.kube import parts
from tools.kube.gobuild import ensure
from tools.kube.processes import free_port
from tools.peers import volcano

LIMITS = "--kube-api-qps=5000 --kube-api-burst=5000"
CEILING = "ceiling"
_PORT = re.compile(r"\{port\}")


@dataclass(frozen=True)
class System:
    """One way to get pods bound."""

    name: str
    scheduler: str
    """Command line; empty for the ceiling, which the harness drives itself."""
    agent: str
    """What its scheduler calls itself in the server's log."""
    scheduler_name: str = "volcano"
    controllers: str = ""
    """Command line of what makes pods from Jobs."""

    @property
    def is_ceiling(self) -> bool:
        return self.name == CEILING


def words(template: str, *, kubeconfig: Path, conf: Path, directory: Path) -> list[str]:
    """A template as the words to run."""
    with_ports = _PORT.sub(lambda _: str(free_port()), template)
    return [
        word.format(kubeconfig=kubeconfig, conf=conf, directory=directory)
        for word in shlex.split(with_ports)
    ]


def built_in(name: str) -> System:
    """One of the systems known by name; Go programs are built when first asked for."""
    if name == "hekla":
        return _hekla()
    if name == "volcano":
        return _volcano()
    if name == "kube-scheduler":
        return _kube_scheduler()
    if name == CEILING:
        return System(CEILING, "", "(ceiling)")
    raise ValueError(f"{name!r} is no system: hekla, volcano, kube-scheduler, ceiling; or --peer")


def peer(text: str) -> System:
    """`name=command` or `name@scheduler-name=command`."""
    title, equals, command = text.partition("=")
    name, _, scheduler_name = title.partition("@")
    if not (name and equals and command.strip()):
        raise ValueError(f"--peer {text!r}: write NAME=COMMAND or NAME@SCHEDULER-NAME=COMMAND")
    if "{kubeconfig}" not in command:
        raise ValueError(f"--peer {name}: the command must say where {{kubeconfig}} goes")
    agent = Path(shlex.split(command)[0]).name
    return System(name, command, agent, scheduler_name or "volcano")


def _hekla() -> System:
    program = f"{shlex.quote(sys.executable)} -m hekla.cli.main"
    common = f"--kubeconfig {{kubeconfig}} {LIMITS}"
    return System(
        "hekla",
        f"{program} scheduler {common} --scheduler-conf {{conf}}",
        "(volcano)",
        controllers=f"{program} controllers {common}",
    )


def _volcano() -> System:
    scheduler, controllers = ensure(volcano.SCHEDULER), ensure(volcano.CONTROLLER_MANAGER)
    common = f"--kubeconfig {{kubeconfig}} --leader-elect=false {LIMITS}"
    return System(
        "volcano",
        f"{scheduler} {common} --scheduler-conf {{conf}} --cache-dumper=false"
        " --listen-address=127.0.0.1:{port} --healthz-address=127.0.0.1:{port}",
        "vc-scheduler",
        controllers=f"{controllers} {common} --healthz-address=127.0.0.1:{{port}}",
    )


def _kube_scheduler() -> System:
    """Plain: it binds pod by pod and knows no gangs."""
    return System(
        "kube-scheduler",
        f"{ensure(parts.SCHEDULER)} --kubeconfig {{kubeconfig}} --leader-elect=false {LIMITS}"
        " --authentication-kubeconfig {kubeconfig} --authorization-kubeconfig {kubeconfig}"
        " --bind-address=127.0.0.1 --secure-port={port}",
        "kube-scheduler",
        scheduler_name="default-scheduler",
    )
