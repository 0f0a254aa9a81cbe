"""Manifest files: read and validated before they are sent."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hekla.cli.vcctl.commands import warn
from hekla.cli.vcctl.errors import CommandFailed, did_you_mean, safe_hint
from hekla.kube.errors import KubeError
from hekla.kube.sync_client import SyncClient
from hekla.units.objects import Object

STDIN = "-"
SUFFIXES = (".json", ".yaml", ".yml")


def read(path: str) -> list[Object]:
    """Return the documents of a YAML file, or of stdin for `-`."""
    from hekla.units import bounded_yaml

    try:
        text = sys.stdin.read() if path == STDIN else Path(path).read_text()
    except OSError as error:
        raise CommandFailed(f"open {path}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise CommandFailed(
            f"{path} is no text in UTF-8", hint="give a manifest, in YAML or JSON"
        ) from error
    try:
        loaded, duplicates = bounded_yaml.load_all_with_duplicates(text, bounded_yaml.FILE)
    except bounded_yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}, column {mark.column + 1}:" if mark is not None else ""
        what = getattr(error, "problem", None) or str(error)
        raise CommandFailed(f"{path} is not YAML:{where} {what}") from error
    for twice in duplicates[:1]:
        raise CommandFailed(
            f"{path}: line {twice.line}: the key {twice.key!r} is given twice ({twice.path})",
            hint="delete one of them",
        )
    documents = [one for one in loaded if one is not None]
    for index, document in enumerate(documents):
        if not isinstance(document, dict):
            raise CommandFailed(f"{path}: document {index + 1} is not an object")
        if not isinstance(document.get("metadata") or {}, dict):
            raise CommandFailed(
                f"{path}: metadata of document {index + 1} is no map",
                hint="write `metadata: {name: NAME}`",
            )
    return documents


def files_of(path: Path) -> list[Path]:
    """Return a file, or the manifests of a directory in the order of their names, as kubectl."""
    if not path.is_dir():
        return [path]
    found = sorted(each for each in path.iterdir() if each.suffix in SUFFIXES and each.is_file())
    if not found:
        raise CommandFailed(f"{path} contains no file that ends in {', '.join(SUFFIXES)}")
    return found


def read_objects(path: Path) -> list[Object]:
    """Return the objects of a file or a directory; there must be one, with apiVersion and kind."""
    objects: list[Object] = []
    for file in files_of(path):
        for document in read(str(file)):
            if missing := _missing_identity(document):
                raise CommandFailed(
                    f"{file}: every document needs apiVersion, kind and a name: "
                    f"{missing} is missing"
                )
            objects.append(document)
    if not objects:
        raise CommandFailed(f"{path} contains no object", hint="write the manifest of a job")
    return objects


def _missing_identity(document: Object) -> str:
    for key in ("apiVersion", "kind"):
        if not isinstance(document.get(key), str) or not document[key]:
            return key
    metadata = document.get("metadata") or {}
    return "" if metadata.get("name") or metadata.get("generateName") else "metadata.name"


def validate(client: SyncClient, obj: Object) -> None:
    """Reject what the server would reject, and warn about unknown fields."""
    from hekla.sdk import validation
    from hekla.sdk.unknown_fields import unknown_fields

    view = validation.ClusterView(client)
    for message in unknown_fields(obj):
        warn(message)
    errors = validation.errors(obj, view)
    if not errors:
        return
    metadata = obj.get("metadata") or {}
    name = metadata.get("name") or metadata.get("generateName") or ""
    lines = [str(error) for error in errors]
    description = lines[0] if len(lines) == 1 else "".join(f"\n  - {line}" for line in lines)
    wrong_queue = next((error.bad_value for error in errors if error.field == "spec.queue"), None)
    hint = ""
    if wrong_queue:
        hint = safe_hint(lambda: _near_queue(str(wrong_queue), view))
    raise CommandFailed(
        f'{obj.get("kind", "object")} "{name}" is invalid: {description}',
        hint=hint or "correct it and try again; --no-check skips validation",
    )


def _near_queue(wrong: str, view: Any) -> str:
    try:
        names = [queue["metadata"]["name"] for queue in view.queues()]
    except KubeError:
        return ""
    near = did_you_mean(wrong, names)
    return (
        near or f"`vcctl queue list` lists the queues; `vcctl queue create -n {wrong}` creates it"
    )
