"""The schedulers that are compared, each as command lines.

A command may use {kubeconfig}, {conf} (volcano-scheduler.conf, the same for all that bring none of
their own), {port} (a free one, another at each use) and {directory}. What a newcomer gets wrong:
the words are split as a shell would, but no shell runs them.
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
    """One way to get pods bound."""

    name: str
    scheduler: str
    """Command line; empty for the ceiling, which the harness drives itself."""
    agent: str
    """What its scheduler calls itself in the server's log."""
    scheduler_name: str = "volcano"
    job_parts: Mapping[str, str] = field(default_factory=dict)
    """Command lines of what makes pods from Jobs, by the names their CPU is counted under."""
    only_jobs: bool = False
    """Whether pods that come without one would pass it by."""
    dialect: Dialect = VOLCANO
    jobs: JobDialect = VOLCANO_JOB
    conf: str = ""
    """Its configuration, where that is not Volcano's; may use all that a command may but {conf}."""
    files: Callable[[], Mapping[str, bytes]] = dict
    """More that it wants in {directory}."""
    server_flags: tuple[str, ...] = ()
    crds: Callable[[], list[Json]] = list
    objects: Callable[[], list[tuple[Resource[Json], Json]]] = list
    """What has to be there before it starts."""

    @property
    def is_ceiling(self) -> bool:
        return self.name == CEILING

    def plays(self, case: Case) -> bool:
        """Whether it can do a case at all."""
        if case.displaces and (
            self.is_ceiling or self.scheduler_name != wellknown.DEFAULT_SCHEDULER
        ):
            return False  # it needs queues and job priorities; the ceiling evicts nobody
        if case.as_jobs:
            return self.is_ceiling or bool(self.job_parts)
        return not self.only_jobs

    def commands(self, case: Case) -> dict[str, str]:
        """Everything of its own that runs for a case; the ceiling's is not a command."""
        return {"scheduler": self.scheduler, **(self.job_parts if case.as_jobs else {})}


def words(template: str, *, kubeconfig: Path, conf: Path, directory: Path) -> list[str]:
    """A template as the words to run."""
    return [
        filled(word, kubeconfig=kubeconfig, conf=conf, directory=directory)
        for word in shlex.split(template)
    ]


def filled(template: str, **places: Path) -> str:
    """A template with its places, and a free port wherever it asks for one."""
    with_ports = _PORT.sub(lambda _: str(free_port()), template)
    return with_ports.format(**places)


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


def _kueue() -> System:
    """Kueue lets Jobs in, Kubernetes' controller makes their pods, kube-scheduler binds them."""
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
