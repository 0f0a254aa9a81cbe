"""Flags that many commands share.

Note: for lists and queues -n has its usual meaning. For the verbs on one job Volcano uses `-N name
-n namespace`, while users write `-n name`. Both work: if the name is given by -N or as an argument,
-n is the namespace; otherwise -n is the name. `--name` and `--namespace` are never ambiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from click.shell_completion import CompletionItem

from hekla.cli.vcctl.errors import CommandFailed
from hekla.kube import cluster_choice
from hekla.kube.cluster_choice import Flags
from hekla.kube.errors import ConfigError, KubeError
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.resources import JOBS, NAMESPACES, QUEUES, Obj, Resource
from hekla.kube.sync_client import SyncClient

F = TypeVar("F", bound=Callable[..., Any])

COMPLETION_TIMEOUT_S = 2.0


class Session:
    """The cluster, the credentials and the default namespace of a command."""

    def __init__(self, flags: Flags, master: str = "", timeout_s: float = 30.0) -> None:
        self._flags = flags
        self._master = master
        self._timeout_s = timeout_s

    @cached_property
    def config(self) -> ClusterConfig:
        try:
            config = cluster_choice.find(self._flags)
        except ConfigError:
            if not self._master or self._flags != Flags():
                raise
            config = ClusterConfig(server=self._master)
        if self._master:
            # As in Volcano: --master replaces only the address; credentials come from the
            # kubeconfig.
            server = self._master if "://" in self._master else f"https://{self._master}"
            config = msgspec.structs.replace(config, server=server.rstrip("/"))
        return config

    @cached_property
    def client(self) -> SyncClient:
        return SyncClient(
            self.config, component="vcctl", timeout_s=self._timeout_s, field_manager="vcctl"
        )

    def close(self) -> None:
        if "client" in vars(self):
            self.client.close()

    @property
    def namespace(self) -> str:
        """Return the namespace of the context; Volcano's tools always use `default`."""
        return self.config.namespace


def cluster_flags(given: Mapping[str, Any]) -> Flags:
    """Return the flags that name a cluster among the values of a command's parameters."""
    path, where = given.get("kubeconfig"), given.get("data_dir")
    return Flags(
        kubeconfig=Path(path) if path else None,
        data_dir=Path(where) if where else None,
        context=given.get("context") or "",
    )


def take_cluster_flags(given: dict[str, Any]) -> Flags:
    """Remove these values from a command's parameters and return them."""
    return cluster_flags({name: given.pop(name) for name in ("kubeconfig", "data_dir", "context")})


def connected(function: F) -> F:
    """Add the connection flags; the function gets a `Session` first."""

    @wraps(function)
    def called(*args: Any, master: str, debug: bool, **rest: Any) -> Any:
        for ignored in ("v", "vmodule", "log_flush_frequency"):
            rest.pop(ignored, None)
        session = Session(take_cluster_flags(rest), master)
        try:
            return function(session, *args, **rest)
        except ValueError as error:
            # An invalid name or namespace in a request path, such as `a/b` or `..`.
            if "cannot be a n" not in str(error):
                raise
            raise CommandFailed(
                str(error), hint="names consist of letters, digits, - and ."
            ) from error
        finally:
            session.close()

    for option in reversed(_CONNECTION):
        called = option(called)
    return called  # type: ignore[return-value]


_CONNECTION = (
    click.option("-k", "--kubeconfig", default="", metavar="FILE", help="Kubeconfig to use."),
    click.option(
        "-s",
        "--master",
        default="",
        metavar="URL",
        help="Address of the API server; overrides the kubeconfig.",
    ),
    click.option("--context", default="", metavar="NAME", help="Context of the kubeconfig."),
    click.option(
        "--data-dir", default="", metavar="DIR", help="Data directory of a cluster of `hekla up`."
    ),
    click.option("--debug", is_flag=True, help="Print the traceback of a failure."),
    # Go's log flags: accepted for scripts, without effect.
    click.option("-v", "v", hidden=True, metavar="LEVEL"),
    click.option("--vmodule", hidden=True),
    click.option("--log-flush-frequency", hidden=True),
)


@dataclass(frozen=True, slots=True)
class Target:
    """An object that a command line names; no namespace means the context's."""

    name: str
    namespace: str | None = None
    by_n: bool = False
    """Whether the name came from -n alone: it may have been meant as a namespace."""


JOB_KINDS = frozenset({"job", "jobs", "vcjob", "vcjobs", "vj", "jobs.batch.volcano.sh"})


def plain_name(word: str) -> str:
    """Return the name in `KIND/NAME`, as kubectl writes it."""
    kind, slash, name = word.rpartition("/")
    if slash and kind.lower() not in JOB_KINDS:
        raise CommandFailed(
            f'"{word}" cannot be a name of a job',
            hint="write NAME or job/NAME; names consist of letters, digits, - and .",
        )
    return name


def job_target(word: str | None, name: str, n: str, namespace: str) -> Target:
    """Return the target of an argument, -N/--name, -n and --namespace; an empty name if none is
    given.
    """
    word = plain_name(word) if word else word
    if word and name and word != name:
        raise click.UsageError(f'two jobs given: "{word}" and "{name}"; give one')
    chosen = name or word or ""
    if not chosen:
        return Target(n, namespace or None, by_n=bool(n))
    if n and namespace and n != namespace:
        raise click.UsageError(f'two namespaces given: -n "{n}" and --namespace "{namespace}"')
    return Target(chosen, namespace or n or None)


def complete_names(resource: Resource[Obj]) -> Callable[..., list[CompletionItem]]:
    """Complete the names of existing objects; nothing if the cluster is not reachable."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        given = ctx.params
        session = Session(cluster_flags(given), given.get("master") or "", COMPLETION_TIMEOUT_S)
        try:
            namespace = None
            if resource.namespaced and not given.get("all_namespaces"):
                namespace = given.get("namespace") or session.namespace
                if given.get("n") and resource is JOBS:
                    namespace = given["n"]
            listed = session.client.list(resource, namespace=namespace)
        except KubeError:
            return []
        finally:
            session.close()
        names = (str(one["metadata"]["name"]) for one in listed)
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]

    return complete


def one_job(function: F) -> F:
    """Add the flags of verbs on one job; the function gets a `Target`."""

    @wraps(function)
    def called(*args: Any, word: str | None, name: str, n: str, namespace: str, **rest: Any) -> Any:
        return function(*args, target=job_target(word, name, n, namespace), **rest)

    jobs = complete_names(JOBS)
    argument = click.argument("word", metavar="[NAME]", required=False, shell_complete=jobs)
    return argument(_job_options(called))  # type: ignore[return-value]


def several_jobs(function: F) -> F:
    """Add the flags of verbs on several jobs; the function gets a list of `Target`s."""

    @wraps(function)
    def called(
        *args: Any, words: tuple[str, ...], name: str, n: str, namespace: str, **rest: Any
    ) -> Any:
        if name and len(words) > 1:
            raise click.UsageError("give several jobs as arguments, without -N")
        given = dict.fromkeys(words or ("",))
        targets = [job_target(word, name, n, namespace) for word in given]
        return function(*args, targets=targets, **rest)

    jobs = complete_names(JOBS)
    argument = click.argument("words", metavar="[NAME]…", nargs=-1, shell_complete=jobs)
    return argument(_job_options(called))  # type: ignore[return-value]


def _job_options(called: Callable[..., Any]) -> Callable[..., Any]:
    jobs = complete_names(JOBS)
    for option in reversed(
        (
            click.option("-N", "--name", default="", help="Name of the job.", shell_complete=jobs),
            click.option(
                "-n",
                "n",
                default="",
                metavar="TEXT",
                help="Namespace if the name is given by -N or as an argument; else the job's name.",
                shell_complete=jobs,
            ),
            click.option(
                "--namespace",
                default="",
                help="Namespace.  [default: the context's]",
                shell_complete=complete_names(NAMESPACES),
            ),
        )
    ):
        called = option(called)
    return called


def namespace_option(function: F) -> F:
    """Add -n as the namespace."""
    return click.option(
        "-n",
        "--namespace",
        default="",
        help="Namespace.  [default: the context's]",
        shell_complete=complete_names(NAMESPACES),
    )(function)


def all_namespaces_option(function: F) -> F:
    return click.option("-A", "--all-namespaces", is_flag=True, help="Objects of every namespace.")(
        function
    )


def label_option(function: F) -> F:
    return click.option(
        "-l", "--labels", default="", metavar="SELECTOR", help="Label selector, such as team=ml."
    )(function)


def watch_option(function: F) -> F:
    return click.option("-w", "--watch", is_flag=True, help="Watch, and print every change.")(
        function
    )


def queue_name(text: str = "Name of the queue.", **more: Any) -> Callable[[F], F]:
    """Add -n as the name, since queues have no namespace."""

    def add(function: F) -> F:
        return click.option(
            "-n", "--name", help=text, shell_complete=complete_names(QUEUES), **more
        )(function)

    return add


def resources(_: click.Context, param: click.Parameter, value: str) -> dict[str, str]:
    """Parse `cpu=1,memory=2Gi` as a map; a callback for click."""
    amounts: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in (value or "").split(","))):
        name, equals, amount = part.partition("=")
        if not equals or not name.strip() or not amount.strip():
            raise CommandFailed(f"invalid resource {part!r}, expected <resource>=<value>")
        amounts[name.strip()] = _amount(name.strip(), amount.strip())
    return amounts


def _amount(name: str, text: str) -> str:
    from hekla.units.quantity import QuantityError, parse_quantity

    try:
        parse_quantity(text)
    except QuantityError as error:
        raise CommandFailed(f"resource {name}: {error}", hint="for example cpu=500m") from error
    return text


def duration(_: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Parse `90`, `90s` or `5m` as seconds; a callback for click."""
    from hekla.units.durations import DurationError, parse_duration

    if not value:
        return None
    try:
        return float(value) if value.replace(".", "", 1).isdigit() else parse_duration(value)
    except DurationError as error:
        raise click.BadParameter(str(error), param=param) from error


def phases(*more: str) -> Callable[[click.Context, click.Parameter, str], str]:
    """Return a callback for click that refuses words that are no phases of a job."""

    def check(_: click.Context, param: click.Parameter, value: str) -> str:
        from hekla.sdk import job_phases

        try:
            return ",".join(job_phases.known_phases(value, *more))
        except ValueError as error:
            raise click.BadParameter(str(error), param=param) from error

    return check


def phase_option(function: F) -> F:
    return click.option(
        "--phase",
        default="",
        callback=phases(),
        metavar="PHASES",
        help="Only these phases, such as Pending,Running.",
    )(function)


def pairs(_: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Parse repeated `key=value` flags as a map; a callback for click."""
    values: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", param=param)
        values[key] = value
    return values


def plugins_of(texts: Sequence[str]) -> dict[str, list[str]]:
    """Parse plugins such as `svc` or `ssh=--no-root,--x=y`."""
    plugins: dict[str, list[str]] = {}
    for text in texts:
        name, _, arguments = text.partition("=")
        plugins[name] = [word for word in arguments.split(",") if word]
    return plugins


def _array(_: click.Context, param: click.Parameter, value: str) -> str:
    from hekla.api.arrays import ArrayError, parse

    try:
        if value:
            parse(value)
    except ArrayError as error:
        raise click.BadParameter(str(error), param=param) from error
    return value


array_option = click.option(
    "--array",
    default="",
    metavar="INDICES[%N]",
    callback=_array,
    help="A pod for each index, such as 0-99%10: at most 10 at a time; 1,3,5-9:2.",
)
