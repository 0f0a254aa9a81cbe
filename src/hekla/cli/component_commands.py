"""The commands `hekla scheduler`, `hekla controllers` and `hekla replay`.

Flags have Volcano's names and Go's syntax: `--leader-elect` and `--leader-elect=true` are equal,
durations are `15s`. A flag of Volcano that has no meaning here is rejected with the reason instead
of ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from hekla.units.durations import parse_duration

F = TypeVar("F", bound=Callable[..., Any])

NO_SAMPLE: Final = "every cycle considers all nodes"
NO_SHARDS: Final = "node shards are not supported; use --node-selector to split nodes"
NO_PROFILER: Final = "there is no remote profiler"
UNSUPPORTED: Final = {
    "schedule-period": "cycles run on changes; there is no period",
    "resync-period": "watches resume where they broke; there is no resync",
    "minimum-feasible-nodes": NO_SAMPLE,
    "minimum-percentage-nodes-to-find": NO_SAMPLE,
    "percentage-nodes-to-find": NO_SAMPLE,
    "node-worker-threads": "one thread handles all nodes",
    "gate-removal-worker-num": "scheduling gates are not removed by the scheduler",
    "priority-class": "priority classes are always followed",
    "csi-storage": "storage capacity is not tracked",
    "ignored-provisioners": "storage capacity is not tracked",
    "cache-dumper": "use --decision-log, and `hekla replay`",
    "cache-dump-dir": "use --decision-log, and `hekla replay`",
    "resource-sync-timeout": "the first cycle always waits for the initial list of all objects",
    "disable-default-scheduler-config": "a rejected configuration never takes effect",
    "scheduler-sharding-mode": NO_SHARDS,
    "scheduler-sharding-name": NO_SHARDS,
    "enable-pprof": NO_PROFILER,
    "feature-gates": "there are no feature gates",
    "logtostderr": "the log always goes to stderr",
    "log-flush-frequency": "log lines are written at once",
    "leader-elect-resource-lock": "the lock is always a Lease",
    "lock-object-namespace": "use --leader-elect-resource-namespace",
}
UNSUPPORTED_BY_CONTROLLERS: Final = {
    "enable-pprof": NO_PROFILER,
    "feature-gates": UNSUPPORTED["feature-gates"],
    "logtostderr": UNSUPPORTED["logtostderr"],
    "log-flush-frequency": UNSUPPORTED["log-flush-frequency"],
    "leader-elect-resource-lock": UNSUPPORTED["leader-elect-resource-lock"],
    "lock-object-namespace": UNSUPPORTED["lock-object-namespace"],
    "max-requeue-num": "a failed object is retried with back-off while it exists",
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
    """Return the seconds of a Go duration such as `15s` or `1m30s`."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _flag(name: str, text: str, default: bool = False) -> Callable[[F], F]:
    """Return an option with Go's syntax for booleans: alone, or with `=true` or `=false`."""
    return click.option(
        name, is_flag=False, flag_value="true", type=bool, default=default, help=text
    )


def _reject(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value is not None and not ctx.resilient_parsing:
        reasons = {**UNSUPPORTED_BY_CONTROLLERS, **UNSUPPORTED}
        if ctx.command.name == "controllers":
            reasons = UNSUPPORTED_BY_CONTROLLERS
        name = (param.name or "").replace("_", "-")
        raise click.UsageError(f"--{name} is not supported: {reasons[name]}; omit it")


def _unsupported(reasons: dict[str, str]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for name in reasons:
            function = click.option(
                f"--{name}",
                hidden=True,
                is_flag=False,
                flag_value="true",
                expose_value=False,
                callback=_reject,
            )(function)
        return function

    return decorate


def history_bounds(function: F) -> F:
    """Add the options that bound the history of ended jobs."""
    for option in (
        click.option(
            "--history-days",
            type=click.IntRange(1, 36_500),
            default=400,
            show_default=True,
            metavar="N",
            help="Days for which it keeps them.",
        ),
        click.option(
            "--history-jobs",
            type=click.IntRange(1, 10_000_000),
            default=100_000,
            show_default=True,
            metavar="N",
            help="Ended jobs that `hekla history` keeps.",
        ),
    ):
        function = option(function)
    return function


class _LogLevel(click.IntRange):
    """A number after `-v`, also as Go writes it: `-v=4`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number: Any = value.removeprefix("=") if isinstance(value, str) else value
        return super().convert(number, param, ctx)


_file = click.Path(path_type=Path, dir_okay=False)
_COMMON_OPTIONS: Final[tuple[Callable[..., Any], ...]] = (
    click.option(
        "--kubeconfig", type=_file, help="kubeconfig of the cluster.  [default: as all commands]"
    ),
    click.option(
        "--master", default="", help="Address of the API server; overrides the kubeconfig."
    ),
    _flag("--leader-elect", "Act only while holding a lease; other replicas are on standby."),
    click.option(
        "--leader-elect-lease-duration",
        type=duration,
        default="15s",
        show_default=True,
        help="How long other replicas wait for a leader that does not renew.",
    ),
    click.option(
        "--leader-elect-renew-deadline",
        type=duration,
        default="10s",
        show_default=True,
        help="How long a leader acts without a renewal.",
    ),
    click.option(
        "--leader-elect-retry-period",
        type=duration,
        default="2s",
        show_default=True,
        help="Interval of attempts to acquire or renew.",
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
    _flag(
        "--metrics-secure",
        "Serve metrics over TLS, to tokens that may read the path (TokenReview, "
        "SubjectAccessReview).",
    ),
    _flag("--enable-healthz", "Serve /healthz, /livez and /readyz."),
    click.option(
        "--healthz-address",
        default=":11251",
        show_default=True,
        help="Address of the health endpoints.",
    ),
    click.option(
        "--tls-cert-file",
        type=_file,
        help="Serve metrics and health over TLS with this certificate.",
    ),
    click.option("--tls-private-key-file", type=_file, help="Private key of the certificate."),
    click.option(
        "--ca-cert-file", type=_file, help="Certificate authority of accepted client certificates."
    ),
    click.option(
        "--kube-api-qps",
        type=click.FloatRange(0, min_open=True),
        default=2000.0,
        show_default=True,
        help="API requests per second.",
    ),
    click.option(
        "--kube-api-burst",
        type=click.IntRange(1),
        default=2000,
        show_default=True,
        help="Burst of API requests.",
    ),
    click.option(
        "-v",
        "--v",
        "verbosity",
        type=_LogLevel(0, 10),
        default=0,
        help="Log level; 4 and above: debug.",
    ),
)


def _common_options(function: F) -> F:
    for decorate in reversed(_COMMON_OPTIONS):
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
    help="Namespace of the ConfigMap.",
)
@click.option(
    "--scheduler-name",
    "names",
    multiple=True,
    default=("volcano",),
    show_default="volcano",
    help="Schedule pods with this schedulerName; may repeat.",
)
@click.option(
    "--node-selector",
    multiple=True,
    metavar="KEY:VALUE",
    help="Use only nodes with this label, or with one of several; may repeat.",
)
@click.option(
    "--default-queue", default="default", show_default=True, help="Queue of jobs without one."
)
@click.option(
    "--plugins-dir",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Directory of Python files with custom plugins.",
)
@click.option(
    "--decision-log", type=_file, help="Record every decision in this file, for `hekla replay`."
)
@click.option(
    "--check-invariants",
    is_flag=True,
    help="Check every plan for broken safety laws; needs --decision-log, for `hekla replay`.",
)
@click.option(
    "--listen-address", default=":8080", show_default=True, help="Address of the metrics endpoint."
)
@_common_options
@_unsupported(UNSUPPORTED)
def scheduler(
    scheduler_conf: Path | None,
    scheduler_conf_namespace: str,
    names: tuple[str, ...],
    node_selector: tuple[str, ...],
    default_queue: str,
    plugins_dir: Path | None,
    decision_log: Path | None,
    check_invariants: bool,
    **options: Any,
) -> None:
    """Schedule the pods of a cluster that name this scheduler.

    Several schedulers can run with different names and node selectors. With --leader-elect, several
    replicas of one scheduler can run; one is the leader, the others are on standby.
    """
    from hekla.cli.component_runner import Options, run_component
    from hekla.scheduler.plugins.discovery import discover
    from hekla.scheduler.service.cache import parse_node_selector
    from hekla.scheduler.service.decision_log import DecisionLog
    from hekla.scheduler.service.scheduler import Scheduler

    try:
        selector = parse_node_selector(node_selector)
    except ValueError as error:
        raise click.UsageError(f"--node-selector: {error}") from error
    if check_invariants and decision_log is None:
        raise click.UsageError("--check-invariants needs --decision-log FILE, to replay a breach")
    component_options = _options(Options, options)

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
            check_invariants=check_invariants,
        )

    run_component(names[0] if len(names) == 1 else "volcano", component_options, build)


def _workers(function: F) -> F:
    for name, controller in reversed(WORKERS.items()):
        function = click.option(
            "--" + name.replace("_", "-"),
            type=click.IntRange(1, 1000),
            help=f"Objects that the {controller} handles concurrently.",
        )(function)
    return function


@click.command()
@click.option(
    "--controllers",
    "select",
    default="*",
    show_default=True,
    help="Controllers to run: `*` for all, `*,-gc-controller` for all but one.",
)
@click.option(
    "--scheduler-name",
    "names",
    multiple=True,
    default=("volcano",),
    show_default="volcano",
    help="schedulerName of bare pods that get a PodGroup; may repeat.",
)
@_workers
@click.option(
    "--history-file",
    type=_file,
    help="Record ended jobs in this file, and serve them at the metrics endpoint.",
)
@history_bounds
@click.option(
    "--listen-address", default=":8081", show_default=True, help="Address of the metrics endpoint."
)
@_common_options
@_unsupported(UNSUPPORTED_BY_CONTROLLERS)
def controllers(
    select: str,
    names: tuple[str, ...],
    history_file: Path | None,
    history_jobs: int,
    history_days: int,
    **options: Any,
) -> None:
    """Run the controllers of jobs, queues, flows and other kinds against a cluster."""
    from hekla.cli.component_runner import Options, run_component
    from hekla.controllers.runner import LEASE, Controllers
    from hekla.records.store import HistoryStore

    workers = {WORKERS[name]: options.pop(name) for name in WORKERS}
    component_options = _options(Options, options)
    history = None
    if history_file is not None:
        if not (component_options.enable_metrics and component_options.metrics_secure):
            raise click.UsageError(
                "--history-file needs --enable-metrics and --metrics-secure: job records are "
                "served at the metrics endpoint, to tokens with the right to read them"
            )
        history = HistoryStore(history_file, max_jobs=history_jobs, max_age_days=history_days)

    def build(client: Any) -> Controllers:
        try:
            return Controllers(
                client,
                select=[word.strip() for word in select.split(",") if word.strip()],
                workers={name: count for name, count in workers.items() if count},
                schedulers=names,
                history=history,
            )
        except ValueError as error:
            raise click.UsageError(f"--controllers: {error}") from error

    run_component(LEASE, component_options, build, history)


def _options(kind: Callable[..., Any], options: dict[str, Any]) -> Any:
    if (options["tls_cert_file"] is None) != (options["tls_private_key_file"] is None):
        raise click.UsageError("--tls-cert-file and --tls-private-key-file must be given together")
    if options["ca_cert_file"] is not None and options["tls_cert_file"] is None:
        raise click.UsageError("--ca-cert-file needs --tls-cert-file")
    return kind(**options)


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--cycle", type=int, help="Only this cycle; also shows pending reasons.")
@click.option(
    "--scheduler-conf",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Use this configuration instead of the recorded one.",
)
@click.option(
    "--plugins-dir",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Directory of the scheduler's custom plugins.",
)
def replay(
    file: Path, cycle: int | None, scheduler_conf: Path | None, plugins_dir: Path | None
) -> None:
    """Compute the decisions of a decision log (FILE) again and show differences.

    The exit code is 1 if any plan differs.
    """
    from hekla.cli.replay import run_replay

    raise SystemExit(run_replay(file, cycle, scheduler_conf, plugins_dir))


def register(group: click.Group) -> None:
    for command in (scheduler, controllers, replay):
        group.add_command(command)
