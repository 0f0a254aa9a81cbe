"""`hekla scheduler`, `hekla controllers` and `hekla replay`: their flags.

Flags are Volcano's where it has them, in Go's manner: `--leader-elect` and `--leader-elect=true`
are the same, times are `15s`. A flag of Volcano's that means nothing here is refused with the
reason; ignoring it would leave somebody thinking that it works. Heavy imports live inside the
commands.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from hekla.units.durations import parse_duration

F = TypeVar("F", bound=Callable[..., Any])

NO_SAMPLE: Final = "hekla looks at every node in every cycle; there is nothing to set"
NO_SHARDS: Final = "node shards are not supported; use --node-selector to split nodes"
NO_PROFILER: Final = "there is no profiler to reach from outside"
REFUSED: Final = {
    "schedule-period": "hekla decides when something changes; there is no period",
    "resync-period": "watches are taken up again where they broke; there is no resync",
    "minimum-feasible-nodes": NO_SAMPLE,
    "minimum-percentage-nodes-to-find": NO_SAMPLE,
    "percentage-nodes-to-find": NO_SAMPLE,
    "node-worker-threads": "nodes are taken in by one thread; there is nothing to set",
    "gate-removal-worker-num": "scheduling gates are not removed by the scheduler",
    "priority-class": "priority classes are always followed",
    "csi-storage": "storage capacity is not tracked",
    "ignored-provisioners": "storage capacity is not tracked",
    "cache-dumper": "use --decision-log, and `hekla replay`",
    "cache-dump-dir": "use --decision-log, and `hekla replay`",
    "resource-sync-timeout": "the first decision always waits until everything was seen",
    "disable-default-scheduler-config": "a configuration that is refused never takes effect",
    "scheduler-sharding-mode": NO_SHARDS,
    "scheduler-sharding-name": NO_SHARDS,
    "enable-pprof": NO_PROFILER,
    "feature-gates": "there are no feature gates",
    "logtostderr": "messages always go to stderr",
    "log-flush-frequency": "messages are written at once",
    "leader-elect-resource-lock": "the lock is always a Lease",
    "lock-object-namespace": "use --leader-elect-resource-namespace",
}
REFUSED_BY_CONTROLLERS: Final = {
    "enable-pprof": NO_PROFILER,
    "feature-gates": REFUSED["feature-gates"],
    "logtostderr": REFUSED["logtostderr"],
    "log-flush-frequency": REFUSED["log-flush-frequency"],
    "leader-elect-resource-lock": REFUSED["leader-elect-resource-lock"],
    "lock-object-namespace": REFUSED["lock-object-namespace"],
    "max-requeue-num": "what fails is tried again for as long as it is there, less and less often",
    "inherit-owner-annotations": "annotations of an owner are always inherited",
    "sharding-configmap": NO_SHARDS,
    "sharding-configmap-namespace": NO_SHARDS,
    "shard-sync-period": NO_SHARDS,
    "enable-node-event-trigger": NO_SHARDS,
    "scheduler-configs": NO_SHARDS,
}
WORKERS: Final = {
    "worker_threads": "job-controller",
    "worker_threads_for_cronjob": "cronjob-controller",
    "worker_threads_for_podgroup": "pg-controller",
    "worker_threads_for_gc": "gc-controller",
    "worker_threads_for_queue": "queue-controller",
}


def duration(text: str) -> float:
    """Seconds of Go's durations: `15s`, `1m30s`."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _flag(name: str, text: str, default: bool = False) -> Callable[[F], F]:
    """A switch in Go's manner, alone or with `=true` or `=false`."""
    return click.option(
        name, is_flag=False, flag_value="true", type=bool, default=default, help=text
    )


def _refuse(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value is not None and not ctx.resilient_parsing:
        reasons = {**REFUSED_BY_CONTROLLERS, **REFUSED}
        if ctx.command.name == "controllers":
            reasons = REFUSED_BY_CONTROLLERS
        name = (param.name or "").replace("_", "-")
        raise click.UsageError(f"--{name} is not supported: {reasons[name]}; leave it out")


def _refused(reasons: dict[str, str]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for name in reasons:
            function = click.option(
                f"--{name}",
                hidden=True,
                is_flag=False,
                flag_value="true",
                expose_value=False,
                callback=_refuse,
            )(function)
        return function

    return decorate


_file = click.Path(path_type=Path, dir_okay=False)
_SHARED: Final[tuple[Callable[..., Any], ...]] = (
    click.option("--kubeconfig", type=_file, help="Which cluster to serve.  [default: as kubectl]"),
    click.option("--master", default="", help="Address of the API server, instead of its own."),
    _flag("--leader-elect", "Act only while holding a lease, so that replicas can stand by."),
    click.option(
        "--leader-elect-lease-duration",
        type=duration,
        default="15s",
        show_default=True,
        help="How long a silent leader is waited for.",
    ),
    click.option(
        "--leader-elect-renew-deadline",
        type=duration,
        default="10s",
        show_default=True,
        help="How long a leader acts without renewing.",
    ),
    click.option(
        "--leader-elect-retry-period",
        type=duration,
        default="2s",
        show_default=True,
        help="How often to try.",
    ),
    click.option(
        "--leader-elect-resource-name",
        default="",
        help="Name of the lease.  [default: by component]",
    ),
    click.option(
        "--leader-elect-resource-namespace",
        default="volcano-system",
        show_default=True,
        help="Namespace of the lease.",
    ),
    _flag("--enable-metrics", "Serve /metrics."),
    _flag("--enable-healthz", "Serve /healthz, /livez and /readyz."),
    click.option(
        "--healthz-address", default=":11251", show_default=True, help="Where to serve health."
    ),
    click.option("--tls-cert-file", type=_file, help="Serve both by TLS, with this certificate."),
    click.option("--tls-private-key-file", type=_file, help="Its key."),
    click.option("--ca-cert-file", type=_file, help="Whose client certificates are believed."),
    click.option(
        "--kube-api-qps",
        type=click.FloatRange(0, min_open=True),
        default=2000.0,
        show_default=True,
        help="Requests a second.",
    ),
    click.option(
        "--kube-api-burst",
        type=click.IntRange(1),
        default=2000,
        show_default=True,
        help="Requests at once.",
    ),
    click.option(
        "-v",
        "verbosity",
        type=click.IntRange(0, 10),
        default=0,
        help="How much to say; 4 and above: everything.",
    ),
)


def _shared(function: F) -> F:
    for decorate in reversed(_SHARED):
        function = decorate(function)
    return function


@click.command()
@click.option(
    "--scheduler-conf",
    type=_file,
    help="volcano-scheduler.conf.  [default: from ConfigMap volcano-scheduler-configmap]",
)
@click.option(
    "--scheduler-conf-namespace",
    default="volcano-system",
    show_default=True,
    help="Where that ConfigMap is.",
)
@click.option(
    "--scheduler-name",
    "names",
    multiple=True,
    default=("volcano",),
    show_default="volcano",
    help="Whose pods to schedule; may repeat.",
)
@click.option(
    "--node-selector",
    multiple=True,
    metavar="KEY:VALUE",
    help="See only nodes with this label, or with one of several; may repeat.",
)
@click.option(
    "--default-queue", default="default", show_default=True, help="For jobs that name no queue."
)
@click.option(
    "--plugins-dir",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Directory of Python files with plugins of your own.",
)
@click.option("--decision-log", type=_file, help="Record every decision there, for `hekla replay`.")
@click.option(
    "--listen-address", default=":8080", show_default=True, help="Where to serve metrics."
)
@_shared
@_refused(REFUSED)
def scheduler(
    scheduler_conf: Path | None,
    scheduler_conf_namespace: str,
    names: tuple[str, ...],
    node_selector: tuple[str, ...],
    default_queue: str,
    plugins_dir: Path | None,
    decision_log: Path | None,
    **options: Any,
) -> None:
    """Schedule the pods of a cluster that name this scheduler.

    Several may run at once with names and node selectors of their own. With --leader-elect, several
    replicas of one: the others stand by.
    """
    from hekla.cli.component_runner import Options, run_component
    from hekla.scheduler.plugins.discovery import discover
    from hekla.scheduler.service.cache import parse_node_selector
    from hekla.scheduler.service.decision_log import DecisionLog
    from hekla.scheduler.service.service import Scheduler

    try:
        selector = parse_node_selector(node_selector)
    except ValueError as error:
        raise click.UsageError(f"--node-selector: {error}") from error
    given = _options(Options, options)

    def build(client: Any) -> Scheduler:
        return Scheduler(
            client,
            names=names,
            default_queue=default_queue,
            node_selector=selector,
            conf=scheduler_conf,
            conf_namespace=scheduler_conf_namespace,
            registry=discover(plugins_dir),
            decision_log=None if decision_log is None else DecisionLog(decision_log),
        )

    run_component(names[0] if len(names) == 1 else "volcano", given, build)


def _workers(function: F) -> F:
    for name, controller in reversed(WORKERS.items()):
        function = click.option(
            "--" + name.replace("_", "-"),
            type=click.IntRange(1, 1000),
            help=f"Objects that the {controller} looks at at once.",
        )(function)
    return function


@click.command()
@click.option(
    "--controllers",
    "select",
    default="*",
    show_default=True,
    help="Which to run: `*` for all, `-gc-controller` for all but one.",
)
@click.option(
    "--scheduler-name",
    "names",
    multiple=True,
    default=("volcano",),
    show_default="volcano",
    help="Whose bare pods get a PodGroup; may repeat.",
)
@_workers
@click.option(
    "--listen-address", default=":8081", show_default=True, help="Where to serve metrics."
)
@_shared
@_refused(REFUSED_BY_CONTROLLERS)
def controllers(select: str, names: tuple[str, ...], **options: Any) -> None:
    """Run the controllers of jobs, queues, flows and the rest against a cluster."""
    from hekla.cli.component_runner import Options, run_component
    from hekla.controllers.runner import LEASE, Controllers

    workers = {WORKERS[name]: options.pop(name) for name in WORKERS}
    given = _options(Options, options)

    def build(client: Any) -> Controllers:
        try:
            return Controllers(
                client,
                select=[word.strip() for word in select.split(",") if word.strip()],
                workers={name: count for name, count in workers.items() if count},
                schedulers=names,
            )
        except ValueError as error:
            raise click.UsageError(f"--controllers: {error}") from error

    run_component(LEASE, given, build)


def _options(kind: Callable[..., Any], options: dict[str, Any]) -> Any:
    if (options["tls_cert_file"] is None) != (options["tls_private_key_file"] is None):
        raise click.UsageError("--tls-cert-file and --tls-private-key-file belong together")
    if options["ca_cert_file"] is not None and options["tls_cert_file"] is None:
        raise click.UsageError("--ca-cert-file needs --tls-cert-file")
    return kind(**options)


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--cycle", type=int, help="Only this one; shows why jobs wait, too.")
@click.option(
    "--scheduler-conf",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Decide by this configuration instead of the recorded one.",
)
@click.option(
    "--plugins-dir",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Where the plugins are that the scheduler had.",
)
def replay(
    file: Path, cycle: int | None, scheduler_conf: Path | None, plugins_dir: Path | None
) -> None:
    """Decide again what a decision log (FILE) recorded, and show where the plan differs.

    The exit code is 1 if any plan differs.
    """
    from hekla.cli.replay import run_replay

    raise SystemExit(run_replay(file, cycle, scheduler_conf, plugins_dir))


def register(group: click.Group) -> None:
    for command in (scheduler, controllers, replay):
        group.add_command(command)
