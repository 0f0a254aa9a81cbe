"""The verbs create, delete, list, get and describe, for commands of one kind.

Note: with -f a failed document is reported and skipped, and the exit code stays 0, as in Volcano.
With `--strict` any failure counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from hekla.cli import terminal
from hekla.cli.vcctl import list_watch, manifests
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
_STRICT = click.option("--strict", is_flag=True, help="Exit with 255 if any document fails.")


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
                failure = failure_of(error) if isinstance(error, KubeError) else error
                terminal.echo(f"Failed to {verb} {kind}: {failure.message}")
                if failure.hint:
                    terminal.echo(f"  {failure.hint}", err=True)
                failed += 1
        return failed

    def create(self, session: Session, document: Object, *, check: bool) -> str:
        document.setdefault("apiVersion", self.resource.api_version)
        if check:
            manifests.validate(session.client, document)
        session.client.create(self.resource, document)
        return f"Created {self.resource.kind}: {namespace_of(document)}/{name_of(document)}"

    def delete(self, session: Session, name: str, namespace: str) -> str:
        self.find(session, name, namespace)
        session.client.delete(self.resource, name, namespace=namespace)
        return f"Deleted {self.resource.kind}: {namespace}/{name}"

    def describe(self, session: Session, name: str, namespace: str, form: str) -> None:
        if name:
            objects = [self.find(session, name, namespace)]
        else:
            objects = list(session.client.list(self.resource, namespace=namespace))
        for obj in objects:
            if form not in ("yaml", "json"):
                terminal.echo(f"Unsupported format: {form}")
                return
            text = formatted(self.resource, obj, form)
            click.echo(text if name else f"{text}\n\n")

    def required(self, name: str, word: str | None) -> str:
        if not (name or word):
            raise CommandFailed(self.missing, hint=f"write `vcctl {self.noun} … -N NAME`")
        return name or word or ""


def add_verbs(group: click.Group, verbs: Verbs) -> None:
    """Add the five commands to a group."""
    _add_create(group, verbs)
    _add_delete(group, verbs)
    _add_list(group, verbs)
    _add_get(group, verbs)
    _add_describe(group, verbs)


def _name_options(verbs: Verbs) -> Decorator:
    """Return the decorator that adds a name, as an argument or as -N."""
    complete = complete_names(verbs.resource)
    help_text = f"Name of the {verbs.resource.kind}."

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        option = click.option("-N", "--name", default="", help=help_text, shell_complete=complete)
        word = click.argument("word", metavar="[NAME]", required=False, shell_complete=complete)
        return word(option(function))

    return decorate


def _exit_if(failed: int, strict: bool) -> None:
    if failed and strict:
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
    def create(session: Session, file: str, namespace: str, check: bool, strict: bool) -> None:
        if not file:
            raise CommandFailed("file must be specified", hint=f"vcctl {verbs.noun} create -f FILE")
        where = namespace or session.namespace
        _exit_if(
            verbs.each(
                session, file, where, "create", lambda d: verbs.create(session, d, check=check)
            ),
            strict,
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
    def delete(
        session: Session, word: str | None, name: str, namespace: str, file: str, strict: bool
    ) -> None:
        where = namespace or session.namespace
        if file:

            def act(document: Object) -> str:
                return verbs.delete(session, name_of(document), namespace_of(document))

            _exit_if(verbs.each(session, file, where, "delete", act), strict)
            return
        terminal.echo(verbs.delete(session, verbs.required(name, word), where))


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
        help=f"Show one {verbs.resource.kind}.", examples=[f"vcctl {verbs.noun} get -N NAME -n ml"]
    )
    @_name_options(verbs)
    @namespace_option
    @output_option
    @connected
    def get(session: Session, word: str | None, name: str, namespace: str, output: str) -> None:
        obj = verbs.find(session, verbs.required(name, word), namespace or session.namespace)
        if output and output != "wide":
            show_object(verbs.resource, obj, output)
        else:
            show_list(verbs.resource, [obj], verbs.columns, output)


def _add_describe(group: click.Group, verbs: Verbs) -> None:
    @group.command(
        help=f"Show one {verbs.resource.kind} in full, or all of a namespace.",
        examples=[f"vcctl {verbs.noun} describe -N NAME -o json"],
    )
    @_name_options(verbs)
    @namespace_option
    @click.option("-o", "--format", "form", default="yaml", help="yaml or json.  [default: yaml]")
    @connected
    def describe(session: Session, word: str | None, name: str, namespace: str, form: str) -> None:
        verbs.describe(session, name or word or "", namespace or session.namespace, form)
