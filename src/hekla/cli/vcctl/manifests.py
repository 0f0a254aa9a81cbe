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


def read(path: str) -> list[Object]:
    """Return the documents of a YAML file, or of stdin for `-`."""
    from hekla.units import bounded_yaml

    try:
        text = sys.stdin.read() if path == STDIN else Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CommandFailed(f"open {path}: {reason.lower()}") from error
    try:
        documents = [
            one for one in bounded_yaml.load_all(text, bounded_yaml.FILE) if one is not None
        ]
    except bounded_yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}, column {mark.column + 1}:" if mark is not None else ""
        what = getattr(error, "problem", None) or str(error)
        raise CommandFailed(f"{path} is not YAML:{where} {what}") from error
    for index, document in enumerate(documents):
        if not isinstance(document, dict):
            raise CommandFailed(f"{path}: document {index + 1} is not an object")
    return documents


def validate(client: SyncClient, obj: Object) -> None:
    """Reject what the server would reject, and warn about unknown fields."""
    from hekla.sdk import validation

    view = validation.ClusterView(client)
    for message in validation.unknown_fields(obj):
        warn(message)
    errors = validation.errors(obj, view)
    if not errors:
        return
    name = (obj.get("metadata") or {}).get("name", "")
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
