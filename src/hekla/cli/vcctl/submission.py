"""`vcctl job run`, as in Volcano, and `vcctl job submit`, with all settings of a job."""

from __future__ import annotations

import re
import shlex
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from hekla.api import arrays, wellknown
from hekla.cli import terminal
from hekla.cli.vcctl import manifests
from hekla.cli.vcctl.commands import VcctlCommand, note, program
from hekla.cli.vcctl.errors import CommandFailed
from hekla.cli.vcctl.options import (
    Session,
    array_option,
    complete_names,
    connected,
    pairs,
    plugins_of,
    resources,
)
from hekla.cli.vcctl.output import as_yaml, output_option, show_object
from hekla.kube.resources import JOBS, NAMESPACES, QUEUES
from hekla.units.objects import Object

DEFAULT_RESOURCES = "cpu=1000m,memory=100Mi"


_SHELL_SIGNS = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<"})
_VARIABLE = re.compile(r"\$[A-Za-z_{]")


def plain_job(
    name: str,
    *,
    image: str,
    scheduler: str,
    min_available: int,
    replicas: int,
    requests: dict[str, str],
    limits: dict[str, str],
    command: str = "",
    array: str = "",
) -> Object:
    """Return the job of `vcctl job run` and `vsub`: one task, which admission names."""
    container: Object = {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
    }
    if amounts := {
        key: value for key, value in (("requests", requests), ("limits", limits)) if value
    }:
        container["resources"] = amounts
    if command:
        container["command"] = _words(command)
    metadata: Object = {"name": name}
    if array:
        if (min_available, replicas) != (1, 1):
            raise CommandFailed(
                "--array with --replicas or --min",
                hint="an array has a replica for each index, and starts with any; omit them",
            )
        metadata["annotations"] = arrays.parse(array).annotations()
    return {
        "apiVersion": wellknown.BATCH_API,
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "minAvailable": min_available,
            "schedulerName": scheduler,
            "tasks": [
                {
                    **({} if array else {"replicas": replicas}),
                    "template": {
                        "metadata": {"name": name, "labels": {"job.volcano.sh": name}},
                        "spec": {"restartPolicy": "Never", "containers": [container]},
                    },
                }
            ],
        },
    }


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise CommandFailed(
            f"command {command!r} is not a shell command: {str(error).lower()}",
            hint="close every quote; a command in quotes is one word of the shell",
        ) from error


def needs_shell(command: str) -> bool:
    """Return whether a command has variables, pipes or the like, and no program that reads them."""
    words = shlex.split(command)
    if not words or (len(words) > 1 and words[1].startswith("-")):
        return False  # such as sh -c, python -c
    # Kubernetes itself replaces $(NAME).
    return bool(_SHELL_SIGNS & set(words)) or any(_VARIABLE.search(word) for word in words)


def create(session: Session, manifest: Object, namespace: str | None, *, check: bool) -> Object:
    """Create a job in its own namespace, the requested one, or the context's."""
    metadata = manifest.setdefault("metadata", {})
    inside = metadata.get("namespace") or ""
    if namespace and inside and namespace != inside:
        raise CommandFailed(
            f"the namespace of the provided object does not match the namespace sent on the "
            f"request: {inside!r} and {namespace!r}",
            hint=f"omit -n, or use -n {inside}",
        )
    where = namespace or inside or session.namespace
    if check:
        metadata["namespace"] = where
        manifests.validate(session.client, manifest)
    return session.client.create(JOBS, manifest, namespace=where)


def job_of_file(path: str) -> Object:
    if path != manifests.STDIN and ".yaml" not in path and ".yml" not in path:
        raise CommandFailed("only support yaml file", hint=f"rename {path} to end in .yaml")
    documents = manifests.read(path)
    if not documents:
        raise CommandFailed(f"{path} contains no object")
    if len(documents) > 1:
        raise CommandFailed(
            f"{path} contains {len(documents)} documents instead of one job",
            hint=f"`kubectl apply -f {path}` or `hekla run {path}` applies all of them",
        )
    kind = (documents[0].get("apiVersion"), documents[0].get("kind"))
    if kind != (wellknown.BATCH_API, "Job"):
        raise CommandFailed(
            f"{path} contains a {kind[1]} of {kind[0]} instead of a Job of {wellknown.BATCH_API}",
            hint=f"`kubectl apply -f {path}` applies any kind",
        )
    return documents[0]


_check = click.option(
    "--check/--no-check", default=True, help="Validate before sending.  [default: check]"
)


@click.command(
    "run",
    cls=VcctlCommand,
    examples=[
        "vcctl job run -f job.yaml",
        "vcctl job run -N my-job -i busybox -r 3 -m 2 -R cpu=500m,memory=64Mi",
    ],
)
@click.option("-N", "--name", default="", help="Name of the job; not needed with -f.")
@click.option("-n", "n", default="", metavar="TEXT", help="Namespace; alone, the job's name.")
@click.option("--namespace", default="", help="Namespace.  [default: the context's]")
@click.option("-i", "--image", default="busybox", show_default=True, help="Image of its pods.")
@click.option("-m", "--min", "min_available", default=1, show_default=True, help="Gang size.")
@click.option("-r", "--replicas", default=1, show_default=True, help="Number of pods.")
@click.option(
    "-R", "--requests", default=DEFAULT_RESOURCES, show_default=True, help="Requests of each pod."
)
@click.option(
    "-L", "--limits", default=DEFAULT_RESOURCES, show_default=True, help="Limits of each pod."
)
@click.option("-S", "--scheduler", default="volcano", show_default=True, help="Scheduler.")
@click.option(
    "-f", "--filename", default="", metavar="FILE", help="YAML file of the job; - is stdin."
)
@_check
@output_option
@connected
def run_command(
    session: Session,
    name: str,
    n: str,
    namespace: str,
    image: str,
    min_available: int,
    replicas: int,
    requests: str,
    limits: str,
    scheduler: str,
    filename: str,
    check: bool,
    output: str,
) -> None:
    """Run a job from a file or from flags."""
    if not name and not filename:
        name, n = n, ""
    if n and namespace and n != namespace:
        raise click.UsageError(f'two namespaces given: -n "{n}" and --namespace "{namespace}"')
    if filename:
        manifest = job_of_file(filename)
    elif not name:
        raise CommandFailed(
            "job name cannot be left blank", hint="write `vcctl job run -N NAME` or `-f job.yaml`"
        )
    else:
        manifest = plain_job(
            name,
            image=image,
            scheduler=scheduler,
            min_available=min_available,
            replicas=replicas,
            requests=_amounts(requests),
            limits=_amounts(limits),
        )
    created = create(session, manifest, namespace or n or None, check=check)
    if output and output != "wide":
        show_object(JOBS, created, output)
        return
    terminal.echo(f"run job {created['metadata']['name']} successfully")


def _amounts(text: str) -> dict[str, str]:
    return resources(None, None, text)  # type: ignore[arg-type]


@click.command(
    cls=VcctlCommand,
    examples=[
        "vcctl job submit hello --image busybox -- echo hello",
        "vcctl job submit train --image pytorch --replicas 4 --gpu 1 -q ml --plugin pytorch \\",
        "    --env EPOCHS=3 --logs -- python train.py",
        "vcctl job submit hello --dry-run -o yaml -- date",
        "vcctl job submit --python flows.nightly:make_job",
    ],
)
@click.argument("name", required=False, default="")
@click.argument("words", nargs=-1, metavar="[-- COMMAND…]")
@click.option(
    "-n",
    "--namespace",
    default="",
    help="Namespace.  [default: the context's]",
    shell_complete=complete_names(NAMESPACES),
)
@click.option("-q", "--queue", default="", help="Queue.", shell_complete=complete_names(QUEUES))
@click.option("-i", "--image", default="busybox", show_default=True, help="Image of its pods.")
@click.option("-c", "--command", default="", help="Shell command, instead of -- COMMAND.")
@click.option("-r", "--replicas", default=1, show_default=True, help="Number of pods.")
@array_option
@click.option(
    "--retries",
    type=click.IntRange(0, arrays.MAX_RETRIES),
    default=0,
    metavar="N",
    help="Retry a failed job, or each failed index of an array, so often.",
)
@click.option("-m", "--min", "min_available", type=int, help="Gang size.  [default: all pods]")
@click.option("--cpu", default=None, help="CPU of each pod, such as 2 or 500m.")
@click.option("--memory", default=None, help="Memory request and limit of each pod, such as 4Gi.")
@click.option("--gpu", default=None, help="GPUs of each pod.")
@click.option("-R", "--requests", default="", callback=resources, help="Other resources: a=1,b=2.")
@click.option("--task", "task_name", default="worker", show_default=True, help="Name of the task.")
@click.option(
    "-p", "--plugin", "plugins", multiple=True, help="Job plugin, such as svc or ssh=--no-root."
)
@click.option("-e", "--env", multiple=True, callback=pairs, help="KEY=VALUE for its pods.")
@click.option("--label", "labels", multiple=True, callback=pairs, help="KEY=VALUE on the job.")
@click.option(
    "--policy", "policies", multiple=True, callback=pairs, help="Event=Action for the job."
)
@click.option("--priority-class", default="", help="PriorityClass of the job.")
@click.option("--max-retry", type=int, help="Maximum number of restarts.")
@click.option("--ttl", type=int, help="Seconds until a finished job is deleted.")
@click.option(
    "--restart-policy", default="Never", show_default=True, help="Restart policy of its pods."
)
@click.option("--workdir", default="", help="Working directory of the command.")
@click.option("-S", "--scheduler", default="volcano", show_default=True, help="Scheduler.")
@click.option(
    "--python", "entry", default="", metavar="MODULE:FUNCTION", help="Function that builds it."
)
@click.option(
    "--wait", "wait_", is_flag=True, help="Wait until it finishes; exit with 1 if it fails."
)
@click.option("--logs", "logs_", is_flag=True, help="Show its output until it finishes.")
@click.option("--dry-run", is_flag=True, help="Print the job as YAML; change nothing.")
@_check
@output_option
@connected
def submit(session: Session, **given: Any) -> None:
    """Build a job from flags or with a Python function, and run it."""
    manifest = _from_python(given["entry"]) if given["entry"] else _from_flags(given)
    if given["dry_run"]:
        click.echo(as_yaml(manifest).rstrip("\n"))
        return
    created = create(session, manifest, given["namespace"] or None, check=given["check"])
    if given["output"] and given["output"] != "wide":
        show_object(JOBS, created, given["output"])
    elif not given["logs_"]:
        terminal.echo(f"run job {created['metadata']['name']} successfully")
        note(f"`{program()} job wait {created['metadata']['name']}` waits until it finishes")
    if given["logs_"] or given["wait_"]:
        from hekla.cli.vcctl import job_runtime

        job_runtime.finish(session, created, logs=given["logs_"])


def _from_flags(given: dict[str, Any]) -> Object:
    from hekla.sdk.builders import Job, Task

    if not given["name"]:
        raise CommandFailed(
            "job name cannot be left blank", hint="write `vcctl job submit NAME -- COMMAND`"
        )
    if given["command"] and given["words"]:
        raise click.UsageError("give the command once: by --command or after --")
    task = Task(
        given["task_name"],
        image=given["image"],
        command=given["command"] or list(given["words"]),
        replicas=given["replicas"],
        array=given["array"],
        cpu=given["cpu"],
        memory=given["memory"],
        gpu=given["gpu"],
        requests=given["requests"],
        env=given["env"],
        working_dir=given["workdir"],
        restart_policy=given["restart_policy"],
    )
    built = Job(
        given["name"],
        [task],
        queue=given["queue"],
        min_available=given["min_available"],
        plugins=plugins_of(given["plugins"]),
        policies=given["policies"],
        priority_class=given["priority_class"],
        max_retry=given["max_retry"],
        retries=given["retries"],
        ttl_s=given["ttl"],
        scheduler=given["scheduler"],
        labels=given["labels"],
    )
    try:
        return built.manifest()
    except ValueError as error:
        raise CommandFailed(str(error)) from error


def _from_python(entry: str) -> Object:
    """Return the result of a function: a `hekla.Job` or a manifest."""
    module, colon, attribute = entry.partition(":")
    if not colon:
        raise click.UsageError(f"--python {entry!r}: write MODULE:FUNCTION")
    sys.path.insert(0, str(Path.cwd()))  # as `python -m`: modules of the working directory first
    try:
        result = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise CommandFailed(f"--python {entry}: {error}") from error
    if callable(result):
        result = result()
    manifest = result.manifest() if hasattr(result, "manifest") else result
    if not isinstance(manifest, dict):
        raise CommandFailed(
            f"--python {entry}: returned {type(result).__name__} instead of a hekla.Job"
        )
    return manifest
