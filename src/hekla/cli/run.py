"""`hekla run`: run jobs from manifests or from a command line until they finish.

The jobs run on the cluster that `hekla.kube.cluster_choice` finds, or on a temporary one that ends
with the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import signal
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import uvloop
from msgspec import structs

from hekla.api import wellknown
from hekla.api.wellknown import JobPhase
from hekla.cli import interrupts, terminal
from hekla.cli.command_line import CommandLine, command_line
from hekla.cli.command_words import unread_input
from hekla.cli.job_follower import INTERRUPTED, Aborted, Detached, JobFollower, is_followed
from hekla.cli.progress import Jobs, LiveScreen, PlainScreen, Screen
from hekla.cli.vcctl import manifests
from hekla.cli.vcctl.errors import CommandFailed, failure_of
from hekla.kube import cluster_choice, kubeconfig
from hekla.kube.client import Client
from hekla.kube.cluster_choice import Flags
from hekla.kube.data_dir import data_dir_flag, default_data_dir
from hekla.kube.errors import KubeError
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.sync_client import SyncClient
from hekla.sdk.host_environment import (
    HOST_IMAGE,
    HostEnvironment,
    HostNodes,
    Prepared,
    refuse_elsewhere,
)
from hekla.sdk.host_paths import HostPathError, contents
from hekla.sdk.unknown_fields import unknown_fields
from hekla.units.clock import SystemClock
from hekla.units.durations import format_duration
from hekla.units.objects import Object

COMMAND_FLAGS = (
    "name", "image", "replicas", "array", "retries", "cpu", "memory", "gpu", "queue", "plugins",
    "env", "ttl", "requirements", "workdir", "sync", "inputs", "outputs",
)  # fmt: skip
WORKLOADS = frozenset(
    ("Pod", "Job", "CronJob", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")
)
"""Kinds with pods."""
MAX_NODES = 3
HERE_FLAGS = ("requirements", "sync", "inputs", "outputs")
"""Flags that mean this machine."""


def run(
    flags: Flags,
    files: Sequence[Path],
    words: Sequence[str] = (),
    *,
    written: Mapping[str, str],
    host_images: bool = False,
    replace: bool = False,
    check: bool = True,
    detach: bool = False,
    namespace: str = "",
    **options: Any,
) -> int:
    """Run jobs on the cluster that is meant, or on a temporary one; return the exit code."""
    if files and words:
        raise click.UsageError("give manifests or a command after `--`, not both")
    if not files and not words:
        raise click.UsageError("give manifests, or a command after `--`")
    for path in files:
        if not path.exists():
            raise click.UsageError(f"{path}: no such file or directory")
    if files:
        _refuse_flags_of_commands(written)
    objects = _objects_of(files, check=check)
    _refuse_other_namespaces(objects, namespace)
    given = {name: options.pop(name) for name in (*HERE_FLAGS, "workdir") if name in options}
    line = command_line(words, **options) if words else None
    try:
        target = cluster_choice.find_named(flags)
        if target is None:
            _refuse_detach(detach, flags.data_dir)
        else:
            _refuse_target(target, host_images, bool(words) and "image" not in written)
        outputs: tuple[Path, ...] = ()
        if line is not None:
            here = _prepare(line, target, written, given)
            objects.append(line.job(here))
            outputs = here.outputs
            if note := unread_input(0):
                _say(note)
        request = _RunRequest(
            objects,
            replace=replace,
            is_command=bool(words),
            detach=detach,
            outputs=outputs,
            files=files,
            namespace=namespace,
        )
        if target is None:
            return _run_apart(flags.data_dir, request, host_images=host_images)
        terminal.echo(f"using the cluster {target.server} of {target.source}", err=True)
        more = shlex.join(_flag_words(flags))
        return uvloop.run(_follow(target, request, can_detach=True, cluster_flags=more))
    except KubeError as error:
        raise _failed(failure_of(error)) from error
    except (HostPathError, OSError) as error:
        raise click.ClickException(str(error)) from error


def _refuse_target(target: ClusterConfig, host_images: bool, needs_image: bool) -> None:
    """Refuse what means this machine or a temporary cluster."""
    if host_images:
        raise click.UsageError(_host_images_refusal(target))
    if needs_image and not target.is_loopback:
        raise click.UsageError(_image_needed(target))


def _refuse_detach(detach: bool, data_dir: Path | None) -> None:
    if detach:
        raise click.UsageError(
            "--detach needs a cluster that stays, and none is running: "
            f"`hekla up -d{data_dir_flag(data_dir)}` starts one"
        )


def _image_needed(target: ClusterConfig) -> str:
    return (
        f"--image is needed: the default image {HOST_IMAGE!r} is this machine, and the "
        f"command would run on {target.server} of {target.source}"
    )


def _prepare(
    line: CommandLine,
    target: ClusterConfig | None,
    written: Mapping[str, str],
    given: Mapping[str, Any],
) -> Prepared:
    """Return what the command uses of this machine; build an environment and so on."""
    flags = [written[name] for name in HERE_FLAGS if name in written]
    if line.image != HOST_IMAGE or (target is not None and not target.is_loopback):
        if flags:
            refuse_elsewhere(target, line.image, ", ".join(flags))
        if workdir := given.get("workdir"):
            return Prepared(workdir)
        # The image has a directory of its own, unless the cluster maps it to this machine.
        return Prepared("", annotations={wellknown.RUN_DIRECTORY: str(Path.cwd())})
    environment = HostEnvironment(**given)
    for_others, has_processes = False, True  # a temporary cluster runs pods as this user
    if target is not None:
        with SyncClient(target, component="run") as client:
            nodes = HostNodes.of(client)
        if flags:
            nodes.refuse_without_processes(", ".join(flags))
        if nodes.foreign and "image" not in written:
            raise click.UsageError(_image_needed(target))
        for_others, has_processes = nodes.run_as_others, bool(nodes.users)
        if line.memory is not None and nodes.limitless:
            _say(_limitless_note(nodes.limitless))
    elif line.memory is not None and not _enforces_limits():
        _say(_limitless_note(("this machine",)))
    here = environment.prepare(for_others=for_others, say=_say)
    if has_processes:
        here.program(line.words[0], line.env).check(for_others=for_others, say=_say)
    if note := _unwritable_note(environment, for_others=for_others):
        _say(note)
    return here


def _enforces_limits() -> bool:
    """Return whether a temporary cluster enforces memory limits."""
    from hekla.nodeagent.cgroups import Cgroups

    return bool(Cgroups().version)


def _limitless_note(nodes: Sequence[str]) -> str:
    return (
        f"--memory is a request only on {', '.join(nodes[:MAX_NODES])}: a pod beyond it is not "
        "killed, since the user of `hekla up` may not write cgroups; `hekla up` as root enforces it"
    )


def _unwritable_note(environment: HostEnvironment, *, for_others: bool) -> str:
    """Return that pods cannot create files in the working directory; empty if they need not."""
    if not for_others or environment.outputs or environment.sync:
        return ""
    directory = Path(environment.workdir or Path.cwd()).expanduser().absolute()
    needed = stat.S_IWOTH | stat.S_IXOTH
    if directory.stat().st_mode & needed == needed:
        return ""
    return (
        f"the command cannot write to {directory}: pods run as users of their namespace; use "
        "--output DIR for its results"
    )


def _say(line: str) -> None:
    terminal.echo(line, err=True)


def _refuse_flags_of_commands(written: Mapping[str, str]) -> None:
    """Refuse flags that would be ignored: manifests have their own image, replicas and so on."""
    given = [flag for name, flag in written.items() if name in COMMAND_FLAGS]
    if given:
        raise click.UsageError(
            f"{', '.join(given)}: only for a command after `--`; set it in the manifests instead"
        )


def _host_images_refusal(target: ClusterConfig) -> str:
    restart = "restart that cluster (`hekla down`, `hekla up -d --host-images`) or "
    return (
        "--host-images is a setting of the temporary cluster, but the job would run on "
        f"{target.server} of {target.source}, whose settings a run does not change; "
        f"{restart if target.is_loopback else ''}omit the flag"
    )


def _flag_words(flags: Flags) -> Iterator[str]:
    """Yield the flags with which another command uses the same cluster."""
    if flags.kubeconfig is not None:
        yield from ("-k", str(flags.kubeconfig))
    if flags.data_dir is not None:
        yield from ("--data-dir", str(flags.data_dir))
    if flags.context:
        yield from ("--context", flags.context)


def _run_apart(data_dir: Path | None, request: _RunRequest, *, host_images: bool) -> int:
    """Run on a temporary cluster, in a data directory that exists or is temporary too."""
    from hekla.cli import leftovers  # it imports the cluster's modules

    if not any(map(is_followed, request.objects)):
        raise click.ClickException(
            "the manifests contain no job, and no cluster is running to apply them to; "
            f"`hekla up -d{data_dir_flag(data_dir)}` starts one"
        )
    if note := leftovers.crash_note(data_dir or default_data_dir(), data_dir_flag(data_dir)):
        if data_dir is not None and leftovers.of(data_dir):
            raise click.ClickException(note)  # the end of this run would end its pods
        terminal.echo(note, err=True)
    terminal.echo(_temporary_cluster_notice(data_dir), err=True)
    with contextlib.ExitStack() as stack:
        if data_dir is None:
            for line in leftovers.sweep():
                terminal.echo(line, err=True)
            data_dir = stack.enter_context(leftovers.temporary_data_dir())
        try:
            return uvloop.run(_run_on_temporary_cluster(data_dir, request, host_images=host_images))
        except asyncio.CancelledError:  # a signal before the job was submitted
            return INTERRUPTED


def _temporary_cluster_notice(data_dir: Path | None) -> str:
    where = f" in {data_dir}" if data_dir else ""
    text = f"no cluster is running{where}: starting a temporary one, which ends with this run"
    if data_dir is None and (Path.home() / ".kube" / "config").exists():
        text += "\n  ~/.kube/config is used only if --context or $KUBECONFIG names it"
    return text


@dataclass(frozen=True)
class _RunRequest:
    """The objects to run, and how."""

    objects: list[Object]
    replace: bool
    is_command: bool
    detach: bool = False
    """Return once the jobs are submitted."""
    outputs: tuple[Path, ...] = ()
    files: Sequence[Path] = ()
    namespace: str = ""
    """Of objects that name none; empty: the context's."""


def _ttl_note(request: _RunRequest) -> str:
    """Return when the job of a command is deleted; empty if it is kept."""
    (job,) = request.objects
    ttl_s = job["spec"].get("ttlSecondsAfterFinished")
    if ttl_s is None:
        return ""
    days, rest = divmod(ttl_s, 86_400)
    age = f"{days}d" if days and not rest else format_duration(ttl_s)
    return f"job {job['metadata']['name']} is deleted {age} after its end (--ttl)"


def _objects_of(paths: Sequence[Path], *, check: bool) -> list[Object]:
    """Return the objects of files and directories; with `check`, refuse unknown fields."""
    objects: list[Object] = []
    for path in paths:
        try:
            found = manifests.read_objects(path)
        except CommandFailed as error:
            raise _failed(error) from error
        if check:
            _refuse_unknown_fields(path, found)
        objects += found
    return objects


def _refuse_other_namespaces(objects: Sequence[Object], namespace: str) -> None:
    """Refuse manifests of another namespace than the flag's, as kubectl does."""
    for obj in objects:
        own = obj["metadata"].get("namespace")
        if namespace and own and own != namespace:
            raise click.UsageError(
                f"--namespace {namespace}: {obj['kind']} {obj['metadata'].get('name', '')} is in "
                f"namespace {own} by its manifest; omit the flag, or change the manifest"
            )


def _refuse_unknown_fields(path: Path, objects: Sequence[Object]) -> None:
    """Refuse misspelt fields at once: servers drop them without an error."""
    wrong = [
        f"\n  {obj['kind']} {(obj.get('metadata') or {}).get('name', '')}: {message}"
        for obj in objects
        for message in unknown_fields(obj)
    ]
    if wrong:
        raise click.ClickException(
            f"{path} has unknown fields:{''.join(wrong)}\n"
            "correct them; --no-check sends them as they are"
        )


def _failed(failure: CommandFailed) -> click.ClickException:
    return click.ClickException("\n  ".join(filter(None, (failure.message, failure.hint))))


async def _run_on_temporary_cluster(
    data_dir: Path, request: _RunRequest, *, host_images: bool
) -> int:
    from hekla.apiserver.server import AlreadyRunning
    from hekla.apiserver.storage.store import StoreError
    from hekla.images.errors import ImageError
    from hekla.local import LocalConfig, cluster
    from hekla.nodeagent.images import ImagesError

    try:
        # It exists for the one person who called it, and its pods use this person's files.
        config = LocalConfig(data_dir, host_images=host_images, pod_user="owner")
        async with _ended_by_signals() as ending, cluster(config) as server:
            target = kubeconfig.load(server.kubeconfig)
            try:
                return await _follow(
                    target, request, can_detach=False, cluster_flags=f"-k {server.kubeconfig}"
                )
            finally:
                ending.set()
    except (AlreadyRunning, ImageError, ImagesError, StoreError) as error:
        raise click.ClickException(str(error)) from error


def _unfollowed_note(request: _RunRequest) -> str:
    """Return that pods of manifests run on without this run; empty if it follows a job."""
    kinds = {obj["kind"] for obj in request.objects}
    if any(map(is_followed, request.objects)) or not kinds & WORKLOADS:
        return ""
    files = shlex.join(word for path in request.files for word in ("-f", str(path)))
    return (
        "nothing is waited for: only Volcano Jobs and JobFlows are followed; "
        f"`kubectl get {files}` shows these objects"
    )


def _note_aborted(jobs: Jobs, say: Callable[[str], None]) -> None:
    """Print how to go on with jobs that were aborted: no TTL deletes them."""
    for uid, job in jobs.followed.items():
        if jobs.phase(uid) not in JobPhase.FINISHED:
            say(
                f"job {job['metadata']['name']} is kept: `{jobs.command('job resume', uid)}` "
                f"starts it again, `{jobs.command('job delete', uid)}` deletes it"
            )


@contextlib.asynccontextmanager
async def _ended_by_signals() -> AsyncIterator[asyncio.Event]:
    """Cancel this task on a signal, so that the cluster cleans up; not once it is ending."""
    task, ending = asyncio.current_task(), asyncio.Event()

    def stop(_: int) -> None:
        if task is not None and not ending.is_set():
            ending.set()
            task.cancel()

    with interrupts.handlers(stop, (signal.SIGTERM, signal.SIGHUP)):
        yield ending


async def _follow(
    target: ClusterConfig, request: _RunRequest, *, can_detach: bool, cluster_flags: str = ""
) -> int:
    jobs = Jobs(cluster_flags=cluster_flags)
    if request.namespace:
        target = structs.replace(target, namespace=request.namespace)
    async with Client(target, component="run") as client:
        screen: Screen = PlainScreen(jobs)
        if sys.stdout.isatty():
            screen = LiveScreen(jobs, SystemClock().now)
        interrupt = interrupts.Interrupt()
        follower = JobFollower(
            client,
            screen,
            jobs,
            replace=request.replace,
            can_detach=can_detach,
            interrupt=interrupt,
        )
        try:
            if request.detach:
                await follower.submit(request.objects)
                raise Detached
            completed = await follower.run(request.objects)
        except Detached:
            if names := " ".join(job["metadata"]["name"] for job in jobs.followed.values()):
                flag = f" {cluster_flags}" if cluster_flags else ""
                flag += f" -n {request.namespace}" if request.namespace else ""
                screen.message(
                    f"detached; `hekla job logs -f{flag}` and `hekla job wait{flag}` follow {names}"
                )
            return 0
        except Aborted:
            if can_detach:
                _note_aborted(jobs, _say if interrupt.is_unseen else screen.message)
            return interrupt.exit_code
        finally:
            screen.close()
    if note := _unfollowed_note(request):
        terminal.echo(note, err=True)
    for output in request.outputs:
        terminal.echo(f"output {output}: {contents(output)}", err=True)
    is_kept = can_detach and not follower.deleted
    if is_kept and request.is_command and (note := _ttl_note(request)):
        terminal.echo(note, err=True)
    if completed:
        return 0
    return follower.exit_code if request.is_command else 1
