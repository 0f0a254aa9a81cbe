"""The schedulers that are compared, as command lines.

A command may use {kubeconfig}, {conf} (volcano-scheduler.conf, the same for all without another
configuration), {port} (a free port, a new one at each use) and {directory}.

Note: a command is split into words as in a shell, but is run without a shell.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tools.kube import parts
from tools.kube.gobuild import ensure
from tools.kube.processes import free_port
from tools.peers import coscheduling, kueue, volcano

from bench.sidebyside.cases import NAMESPACE, Case
from bench.sidebyside.dialects import (
    COSCHEDULING,
    KUBERNETES,
    KUEUE_JOB,
    VOLCANO,
    VOLCANO_JOB,
    Dialect,
    JobDialect,
)
from hekla.api import wellknown
from hekla.kube.resources import Resource

Json = dict[str, Any]
LIMITS = "--kube-api-qps=5000 --kube-api-burst=5000"
CEILING = "ceiling"
_PORT = re.compile(r"\{port\}")


@dataclass(frozen=True)
class System:
    """A scheduler with the components that it needs."""

    name: str
    scheduler: str
    """Command line; empty for the ceiling, which the harness runs."""
    agent: str
    """The user agent of its scheduler."""
    scheduler_name: str = "volcano"
    job_parts: Mapping[str, str] = field(default_factory=dict)
    """Command lines of the controllers, by the names under which their CPU is counted."""
    only_jobs: bool = False
    """Whether it ignores pods without a gang object."""
    dialect: Dialect = VOLCANO
    jobs: JobDialect = VOLCANO_JOB
    conf: str = ""
    """Its configuration if not Volcano's; may use the same placeholders except {conf}."""
    files: Callable[[], Mapping[str, bytes]] = dict
    """More files in {directory}."""
    server_flags: tuple[str, ...] = ()
    crds: Callable[[], list[Json]] = list
    objects: Callable[[], list[tuple[Resource[Json], Json]]] = list
    """Objects to create before it starts."""

    @property
    def is_ceiling(self) -> bool:
        return self.name == CEILING

    def plays(self, case: Case) -> bool:
        """Return whether it supports a case."""
        if case.displaces and (
            self.is_ceiling or self.scheduler_name != wellknown.DEFAULT_SCHEDULER
        ):
            return False  # it needs queues and job priorities; the ceiling does not evict
        if case.as_jobs:
            return self.is_ceiling or bool(self.job_parts)
        return not self.only_jobs

    def commands(self, case: Case) -> dict[str, str]:
        """Return the commands of a case; the ceiling has none."""
        return {"scheduler": self.scheduler, **(self.job_parts if case.as_jobs else {})}


def words(template: str, *, kubeconfig: Path, conf: Path, directory: Path) -> list[str]:
    """Return the words of a command template."""
    return [
        filled(word, kubeconfig=kubeconfig, conf=conf, directory=directory)
        for word in shlex.split(template)
    ]


def filled(template: str, **places: Path) -> str:
    """Fill in a template; each {port} gets a free port."""
    with_ports = _PORT.sub(lambda _: str(free_port()), template)
    return with_ports.format(**places)


def built_in(name: str) -> System:
    """Return a system by name; its Go programs are built on first use."""
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
    if name == "kueue":
        return _kueue()
    if name == CEILING:
        return System(CEILING, "", "(ceiling)")
    known = "hekla, volcano, kube-scheduler, kube-gang, coscheduling, kueue, ceiling"
    raise ValueError(f"{name!r} is no system: {known}; or --peer")


def peer(text: str) -> System:
    """`name=command` or `name@scheduler-name=command`."""
    title, group_equal, command = text.partition("=")
    name, _, scheduler_name = title.partition("@")
    if not (name and group_equal and command.strip()):
        raise ValueError(f"--peer {text!r}: write NAME=COMMAND or NAME@SCHEDULER-NAME=COMMAND")
    if "{kubeconfig}" not in command:
        raise ValueError(f"--peer {name}: the command must contain {{kubeconfig}}")
    agent = Path(shlex.split(command)[0]).name
    return System(name, command, agent, scheduler_name or "volcano")


def _hekla() -> System:
    program = f"{shlex.quote(sys.executable)} -m hekla.cli.main"
    common = f"--kubeconfig {{kubeconfig}} {LIMITS}"
    return System(
        "hekla",
        f"{program} scheduler {common} --scheduler-conf {{conf}}",
        "(volcano)",
        job_parts={"controllers": f"{program} controllers {common}"},
    )


def _volcano() -> System:
    scheduler, controllers = ensure(volcano.SCHEDULER), ensure(volcano.CONTROLLER_MANAGER)
    common = f"--kubeconfig {{kubeconfig}} --leader-elect=false {LIMITS}"
    return System(
        "volcano",
        f"{scheduler} {common} --scheduler-conf {{conf}} --cache-dumper=false"
        " --listen-address=127.0.0.1:{port} --healthz-address=127.0.0.1:{port}",
        "vc-scheduler",
        job_parts={
            "controllers": f"{controllers} {common} --healthz-address=127.0.0.1:{{port}}",
        },
    )


_KUBE_COMMON = (
    " --authentication-kubeconfig {kubeconfig} --authorization-kubeconfig {kubeconfig}"
    " --bind-address=127.0.0.1 --secure-port={port}"
)


def _kube_scheduler() -> System:
    """Plain kube-scheduler: binds pod by pod, without gangs."""
    return System(
        "kube-scheduler",
        f"{ensure(parts.SCHEDULER)} --kubeconfig {{kubeconfig}} --leader-elect=false {LIMITS}"
        + _KUBE_COMMON,
        "kube-scheduler",
        scheduler_name="default-scheduler",
    )


def _kube_gang() -> System:
    """kube-scheduler with its gang scheduling, which is alpha and off by default."""
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
    """kube-scheduler with the Coscheduling plugin."""
    return System(
        "coscheduling",
        f"{ensure(coscheduling.SCHEDULER)} --config {{conf}}" + _KUBE_COMMON,
        "coscheduling",
        scheduler_name="default-scheduler",
        dialect=COSCHEDULING,
        conf=coscheduling.CONF,
        crds=coscheduling.crds,
    )


def _kueue() -> System:
    """Kueue admits Jobs, Kubernetes' controller creates their pods, kube-scheduler binds them."""
    controllers = f"{ensure(parts.CONTROLLER_MANAGER)} --kubeconfig {{kubeconfig}} {LIMITS}"
    return replace(
        _kube_scheduler(),
        name="kueue",
        job_parts={
            "controllers": f"{controllers} --leader-elect=false --controllers=job-controller"
            " --cert-dir={directory}/controllers" + _KUBE_COMMON,
            "kueue": f"{ensure(kueue.MANAGER)} --kubeconfig {{kubeconfig}} --config {{conf}}",
        },
        only_jobs=True,
        jobs=KUEUE_JOB,
        conf=kueue.CONF,
        files=kueue.files,
        crds=kueue.crds,
        objects=lambda: kueue.objects([NAMESPACE, wellknown.SYSTEM_NAMESPACE]),
    )
