"""The verbs create, delete, list, get and describe, for commands of one kind.

Note: a failed document of -f, or one of several names, is reported and skipped, as in Volcano. The
exit code is then 255, where Volcano's is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from hekla.cli import terminal
from hekla.cli.vcctl import list_watch, manifests
from hekla.cli.vcctl.commands import report_failure
from hekla.cli.vcctl.errors import FAILURE, CommandFailed, did_you_mean, failure_of, safe_hint
from hekla.cli.vcctl.options import (
    Session,
    all_namespaces_option,
    complete_names,
    connected,
    label_option,
    namespace_option,
    watch_option,
)
from hekla.cli.vcctl.output import (
    Column,
    formatted,
    name_of,
    namespace_of,
    output_option,
    show_list,
    show_object,
)
from hekla.kube.errors import KubeError, NotFound
from hekla.kube.resources import Resource
from hekla.units.objects import Object

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_FILE = click.option("-f", "--file", default="", metavar="FILE", help="YAML; - is stdin.")
# Every failure has an exit code; the flag is accepted for scripts.
_STRICT = click.option("--strict", is_flag=True, hidden=True, expose_value=False)


@dataclass(frozen=True, slots=True)
class Verbs:
    """The verbs of one kind. `missing` is Volcano's message for a missing name."""

    resource: Resource[Object]
    noun: str
    missing: str
    columns: tuple[Column, ...]

    def find(self, session: Session, name: str, namespace: str) -> Object:
        try:
            return session.client.get(self.resource, name, namespace=namespace)
        except NotFound as error:
            raise CommandFailed(
                error.message, hint=safe_hint(lambda: self._near(session, name, namespace))
            ) from error

    def _near(self, session: Session, name: str, namespace: str) -> str:
        listed = session.client.list(self.resource, namespace=namespace)
        near = did_you_mean(name, map(name_of, listed))
        return near or f"`vcctl {self.noun} list -n {namespace}` lists them"

    def each(
        self, session: Session, file: str, namespace: str, verb: str, act: Callable[[Object], str]
    ) -> int:
        """Call a function for every document; report and skip failures."""
        failed = 0
        kind = self.resource.kind
        for document in manifests.read(file):
            metadata = document.setdefault("metadata", {})
            metadata["namespace"] = metadata.get("namespace") or namespace
            try:
                if document.get("kind") != kind:
                    raise CommandFailed(
                        f"{file} contains a {document.get('kind')} instead of a {kind}"
                    )
                terminal.echo(act(document))
            except (KubeError, CommandFailed) as error:
                self._report(verb, error)
                failed += 1
        return failed

    def each_name(self, verb: str, names: Sequence[str], act: Callable[[str], None]) -> int:
        """Call a function for every name; report and skip failures."""
        failed = 0
        for name in names:
            try:
                act(name)
            except (KubeError, CommandFailed) as error:
                self._report(verb, error)
                failed += 1
        return failed

    def _report(self, verb: str, error: KubeError | CommandFailed) -> None:
        failure = failure_of(error) if isinstance(error, KubeError) else error
        report_failure(f"Failed to {verb} {self.resource.kind}: {failure.message}", failure.hint)

    def create(self, session: Session, document: Object, *, check: bool) -> str:
        document.setdefault("apiVersion", self.resource.api_version)
        if check:
            manifests.validate(session.client, document)
        created = session.client.create(self.resource, document)
        return f"Created {self.resource.kind}: {namespace_of(created)}/{name_of(created)}"

    def delete(self, session: Session, name: str, namespace: str) -> str:
        self.find(session, name, namespace)
        session.client.delete(self.resource, name, namespace=namespace)
        return f"Deleted {self.resource.kind}: {namespace}/{name}"

    def describe(self, session: Session, names: Sequence[str], namespace: str, form: str) -> int:
        """Print the named objects, or all; return how many were not found.

        One YAML document each, or one JSON document with a list: both stay readable by programs.
        """
        if form not in ("yaml", "json"):
            raise CommandFailed(f"Unsupported format: {form}", hint="use -o yaml or -o json")
        objects: list[Object] = []
        failed = 0
        if len(names) == 1:
            objects.append(self.find(session, names[0], namespace))
        elif names:
            failed = self.each_name(
                "describe",
                names,
                lambda name: objects.append(self.find(session, name, namespace)),
            )
        else:
            objects.extend(session.client.list(self.resource, namespace=namespace))
        if form == "json" and len(names) != 1:
            text = formatted(self.resource, {"items": objects}, form)
        else:
            text = "\n---\n".join(formatted(self.resource, obj, form) for obj in objects)
        click.echo(text)
        return failed

    def required(self, names: Sequence[str]) -> Sequence[str]:
        if not names:
            raise CommandFailed(self.missing, hint=f"write `vcctl {self.noun} … -N NAME`")
        return names


def add_verbs(group: click.Group, verbs: Verbs) -> None:
    """Add the five commands to a group."""
    _add_create(group, verbs)
    _add_delete(group, verbs)
    _add_list(group, verbs)
    _add_get(group, verbs)
    _add_describe(group, verbs)


def _name_options(verbs: Verbs) -> Decorator:
    """Return the decorator that adds names, as arguments or one as -N."""
    complete = complete_names(verbs.resource)
    help_text = f"Name of the {verbs.resource.kind}."

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def called(*args: Any, name: str, words: tuple[str, ...], **rest: Any) -> Any:
            names = tuple(dict.fromkeys((name, *words) if name else words))
            return function(*args, names=names, **rest)

        option = click.option("-N", "--name", default="", help=help_text, shell_complete=complete)
        argument = click.argument("words", metavar="[NAME]…", nargs=-1, shell_complete=complete)
        return argument(option(called))

    return decorate


def _exit_if(failed: int) -> None:
    if failed:
        click.get_current_context().exit(FAILURE)


def _add_create(group: click.Group, verbs: Verbs) -> None:
    @group.command(
        help=f"Create each {verbs.resource.kind} of a file.",
        examples=[f"vcctl {verbs.noun} create -f x.yaml"],
    )
    @_FILE
    @namespace_option
    @click.option(
        "--check/--no-check", default=True, help="Validate before sending.  [default: check]"
    )
    @_STRICT
    @connected
    def create(session: Session, file: str, namespace: str, check: bool) -> None:
        if not file:
            raise CommandFailed("file must be specified", hint=f"vcctl {verbs.noun} create -f FILE")
        where = namespace or session.namespace
        _exit_if(
            verbs.each(
                session, file, where, "create", lambda d: verbs.create(session, d, check=check)
            )
        )


def _add_delete(group: click.Group, verbs: Verbs) -> None:
    @group.command(
        help=f"Delete a {verbs.resource.kind}, or each one of a file.",
        examples=[
            f"vcctl {verbs.noun} delete -N NAME -n ml",
            f"vcctl {verbs.noun} delete -f x.yaml",
        ],
    )
    @_name_options(verbs)
    @namespace_option
    @_FILE
    @_STRICT
    @connected
    def delete(session: Session, names: Sequence[str], namespace: str, file: str) -> None:
        where = namespace or session.namespace
        if file:

            def act(document: Object) -> str:
                return verbs.delete(session, name_of(document), namespace_of(document))

            _exit_if(verbs.each(session, file, where, "delete", act))
            return
        if len(verbs.required(names)) == 1:
            terminal.echo(verbs.delete(session, names[0], where))
            return
        _exit_if(
            verbs.each_name(
                "delete", names, lambda name: terminal.echo(verbs.delete(session, name, where))
            )
        )


def _add_list(group: click.Group, verbs: Verbs) -> None:
    @group.command(
        "list", help=f"List {verbs.resource.kind}s.", examples=[f"vcctl {verbs.noun} list -A"]
    )
    @namespace_option
    @all_namespaces_option
    @label_option
    @output_option
    @watch_option
    @connected
    def list_(
        session: Session,
        namespace: str,
        all_namespaces: bool,
        labels: str,
        output: str,
        watch: bool,
    ) -> None:
        list_watch.show(
            session.client,
            verbs.resource,
            verbs.columns,
            output,
            namespace=None if all_namespaces else namespace or session.namespace,
            labels=labels,
            watch=watch,
        )


def _add_get(group: click.Group, verbs: Verbs) -> None:
    @group.command(
        help=f"Show a {verbs.resource.kind}.", examples=[f"vcctl {verbs.noun} get -N NAME -n ml"]
    )
    @_name_options(verbs)
    @namespace_option
    @output_option
    @connected
    def get(session: Session, names: Sequence[str], namespace: str, output: str) -> None:
        where = namespace or session.namespace
        found = [verbs.find(session, name, where) for name in verbs.required(names)]
        if output and output != "wide" and len(found) == 1:
            show_object(verbs.resource, found[0], output)
        else:
            show_list(verbs.resource, found, verbs.columns, output)


def _add_describe(group: click.Group, verbs: Verbs) -> None:
    @group.command(
        help=f"Show {verbs.resource.kind}s in full: the named ones, or all of a namespace.",
        examples=[f"vcctl {verbs.noun} describe -N NAME -o json"],
    )
    @_name_options(verbs)
    @namespace_option
    @click.option("-o", "--format", "form", default="yaml", help="yaml or json.  [default: yaml]")
    @connected
    def describe(session: Session, names: Sequence[str], namespace: str, form: str) -> None:
        _exit_if(verbs.describe(session, names, namespace or session.namespace, form))
