"""The schedulers that are compared, each as command lines.

A command may use {kubeconfig}, {conf} (volcano-scheduler.conf, the same for all), {port} (a free
one, another at each use) and {directory}. What a newcomer gets wrong: the words are split as a
shell would, but no shell runs them.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tools.kube import parts
from tools.kube.gobuild import ensure
from tools.kube.processes import free_port
from tools.peers import coscheduling, volcano

from bench.sidebyside.dialects import COSCHEDULING, KUBERNETES, VOLCANO, Dialect

Json = dict[str, Any]
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
    dialect: Dialect = VOLCANO
    conf: str = ""
    """Its configuration, where that is not Volcano's; may use {kubeconfig}."""
    server_flags: tuple[str, ...] = ()
    crds: Callable[[], list[Json]] = list

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
    if name == "kube-gang":
        return _kube_gang()
    if name == "coscheduling":
        return _coscheduling()
    if name == CEILING:
        return System(CEILING, "", "(ceiling)")
    known = "hekla, volcano, kube-scheduler, kube-gang, coscheduling, ceiling"
    raise ValueError(f"{name!r} is no system: {known}; or --peer")


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


_KUBE_COMMON = (
    " --authentication-kubeconfig {kubeconfig} --authorization-kubeconfig {kubeconfig}"
    " --bind-address=127.0.0.1 --secure-port={port}"
)


def _kube_scheduler() -> System:
    """Plain: it binds pod by pod and knows no gangs."""
    return System(
        "kube-scheduler",
        f"{ensure(parts.SCHEDULER)} --kubeconfig {{kubeconfig}} --leader-elect=false {LIMITS}"
        + _KUBE_COMMON,
        "kube-scheduler",
        scheduler_name="default-scheduler",
    )


def _kube_gang() -> System:
    """With Kubernetes' own gangs, which are alpha and off by default."""
    gates = "--feature-gates=GenericWorkload=true,GangScheduling=true"
    plain = _kube_scheduler()
    return replace(
        plain,
        name="kube-gang",
        scheduler=f"{plain.scheduler} {gates}",
        dialect=KUBERNETES,
        server_flags=(gates, f"--runtime-config={KUBERNETES.kind.api_version}=true"),
    )


def _coscheduling() -> System:
    """kube-scheduler with the plugin that most who have no batch scheduler take for gangs."""
    return System(
        "coscheduling",
        f"{ensure(coscheduling.SCHEDULER)} --config {{conf}}" + _KUBE_COMMON,
        "coscheduling",
        scheduler_name="default-scheduler",
        dialect=COSCHEDULING,
        conf=coscheduling.CONF,
        crds=coscheduling.crds,
    )
