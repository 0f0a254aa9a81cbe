"""`vcctl jobflow`, and the five verbs that it shares with `vcctl jobtemplate`.

Note: with -f a failed document is reported and skipped, and the exit code stays 0, as in Volcano.
With `--strict` any failure counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import click

from hekla.cli.vcctl import list_watch, manifests
from hekla.cli.vcctl.commands import Leaf, Noun
from hekla.cli.vcctl.errors import FAILURE, CommandFailed, did_you_mean, failure_of, safe_hint
from hekla.cli.vcctl.options import (
    Session,
    all_namespaces_option,
    connected,
    label_option,
    live,
    namespace_option,
    watch_option,
)
from hekla.cli.vcctl.output import (
    Column,
    age_of,
    formatted,
    named,
    output_option,
    phase_colour,
    show_list,
    show_object,
    spaced,
    text_at,
)
from hekla.kube.errors import KubeError, NotFound
from hekla.kube.resources import JOB_FLOWS, Resource
from hekla.units.objects import Object

Columns = tuple[Column, ...]

FLOW_COLUMNS: Columns = (
    Column("Name", named, gap=4),
    Column("Namespace", spaced, gap=4),
    Column("Phase", text_at("status", "state", "phase"), gap=4, colour=phase_colour),
    Column("Age", age_of, gap=4),
)


@dataclass(frozen=True, slots=True)
class Verbs:
    """The verbs create, delete, list, get and describe for one kind."""

    resource: Resource[Object]
    noun: str
    missing: str
    columns: Columns

    def find(self, session: Session, name: str, namespace: str) -> Object:
        try:
            return session.client.get(self.resource, name, namespace=namespace)
        except NotFound as error:
            raise CommandFailed(
                error.message, hint=safe_hint(lambda: self._near(session, name, namespace))
            ) from error

    def _near(self, session: Session, name: str, namespace: str) -> str:
        found = session.client.list(self.resource, namespace=namespace)
        near = did_you_mean(name, map(named, found))
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
                click.echo(act(document))
            except (KubeError, CommandFailed) as error:
                failure = failure_of(error) if isinstance(error, KubeError) else error
                click.echo(f"Failed to {verb} {kind}: {failure.message}")
                if failure.hint:
                    click.echo(f"  {failure.hint}", err=True)
                failed += 1
        return failed

    def create(self, session: Session, document: Object, *, check: bool) -> str:
        document.setdefault("apiVersion", self.resource.api_version)
        if check:
            manifests.checked(session.client, document)
        session.client.create(self.resource, document)
        return f"Created {self.resource.kind}: {spaced(document)}/{named(document)}"

    def delete(self, session: Session, name: str, namespace: str) -> str:
        self.find(session, name, namespace)
        session.client.delete(self.resource, name, namespace=namespace)
        return f"Deleted {self.resource.kind}: {namespace}/{name}"

    def describe(self, session: Session, name: str, namespace: str, form: str) -> None:
        if name:
            found = [self.find(session, name, namespace)]
        else:
            found = list(session.client.list(self.resource, namespace=namespace))
        for obj in found:
            if form not in ("yaml", "json"):
                click.echo(f"Unsupported format: {form}")
                return
            text = formatted(self.resource, obj, form)
            click.echo(text if name else f"{text}\n\n")


def add_verbs(group: click.Group, verbs: Verbs) -> None:
    """Add the five commands to a group."""
    kind, noun = verbs.resource.kind, verbs.noun
    complete = live(verbs.resource)
    name_option = click.option(
        "-N", "--name", default="", help=f"Name of the {kind}.", shell_complete=complete
    )
    word = click.argument("word", metavar="[NAME]", required=False, shell_complete=complete)
    file_option = click.option("-f", "--file", default="", metavar="FILE", help="YAML; - is stdin.")
    strict = click.option("--strict", is_flag=True, help="Exit with 255 if any document fails.")

    def required(name: str, given: str | None) -> str:
        if not (name or given):
            raise CommandFailed(verbs.missing, hint=f"write `vcctl {noun} … -N NAME`")
        return name or given or ""

    def finish(failed: int, strict: bool) -> None:
        if failed and strict:
            click.get_current_context().exit(FAILURE)

    @group.command(
        help=f"Create each {kind} of a file.", examples=[f"vcctl {noun} create -f x.yaml"]
    )
    @file_option
    @namespace_option
    @click.option(
        "--check/--no-check", default=True, help="Validate before sending.  [default: check]"
    )
    @strict
    @connected
    def create(session: Session, file: str, namespace: str, check: bool, strict: bool) -> None:
        if not file:
            raise CommandFailed("file must be specified", hint=f"vcctl {noun} create -f FILE")
        where = namespace or session.namespace
        finish(
            verbs.each(
                session, file, where, "create", lambda d: verbs.create(session, d, check=check)
            ),
            strict,
        )

    @group.command(
        help=f"Delete a {kind}, or each one of a file.",
        examples=[f"vcctl {noun} delete -N NAME -n ml", f"vcctl {noun} delete -f x.yaml"],
    )
    @word
    @name_option
    @namespace_option
    @file_option
    @strict
    @connected
    def delete(
        session: Session, word: str | None, name: str, namespace: str, file: str, strict: bool
    ) -> None:
        where = namespace or session.namespace
        if file:

            def act(document: Object) -> str:
                return verbs.delete(session, named(document), spaced(document))

            finish(verbs.each(session, file, where, "delete", act), strict)
            return
        click.echo(verbs.delete(session, required(name, word), where))

    @group.command("list", help=f"List {kind}s.", examples=[f"vcctl {noun} list -A"])
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

    @group.command(help=f"Show one {kind}.", examples=[f"vcctl {noun} get -N NAME -n ml"])
    @word
    @name_option
    @namespace_option
    @output_option
    @connected
    def get(session: Session, word: str | None, name: str, namespace: str, output: str) -> None:
        found = verbs.find(session, required(name, word), namespace or session.namespace)
        if output and output != "wide":
            show_object(verbs.resource, found, output)
        else:
            show_list(verbs.resource, [found], verbs.columns, output)

    @group.command(
        help=f"Show one {kind} in full, or all of a namespace.",
        examples=[f"vcctl {noun} describe -N NAME -o json"],
    )
    @word
    @name_option
    @namespace_option
    @click.option("-o", "--format", "form", default="yaml", help="yaml or json.  [default: yaml]")
    @connected
    def describe(session: Session, word: str | None, name: str, namespace: str, form: str) -> None:
        verbs.describe(session, name or word or "", namespace or session.namespace, form)


@click.group(cls=Noun)
def jobflow() -> None:
    """Create, list and delete flows: jobs with dependencies."""


FLOWS = Verbs(JOB_FLOWS, "jobflow", "jobflow name must be specified", FLOW_COLUMNS)
add_verbs(jobflow, FLOWS)
assert all(isinstance(command, Leaf) for command in jobflow.commands.values())
