"""Generate docs/compatibility.md from the client tests: `python -m tools.compatibility`.

A test declares the client and version that it runs or imitates
(`tests.clients.standing.stands_for`). A test checks that the page is current.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

PAGE = Path(__file__).parents[1] / "docs" / "compatibility.md"
PACKAGES = ("tests.clients", "tests.apiserver", "tests.apiserver.kubectl")
HEAD = """\
<!-- Made by `python -m tools.compatibility` from the tests. Change those, not this. -->
# Compatibility

Clients that were tested with hekla, on its own server (*embedded*) and on a real kube-apiserver
with hekla's scheduler, controllers and webhooks (*Kubernetes*).

*runs*: the client itself, unmodified, in the version named, is run by the test. *imitates*: the
objects and requests that version sends are sent by the test, because the client is not written in
Python or wants a cluster of its own.
"""
LEFT_OUT = """\
## What the embedded server leaves to others

- Nothing makes the pods of DaemonSets there: the objects are kept, and Kubernetes' own
  kube-controller-manager, pointed at hekla's server, makes the pods.
- `torchx log` needs nodes that really run programs: it is tested on `hekla up`. The nodes of the
  other tests only pretend to run pods, on both servers.
- dask-kubernetes' `KubeCluster` connects to the Dask scheduler that its pods run; with nodes that
  pretend, only the operator and the objects it makes are tested.
"""


@dataclass
class Row:
    """One client in one version."""

    client: str
    version: str
    how: str
    kinds: dict[str, None] = field(default_factory=dict)
    servers: dict[str, None] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)


def modules() -> Iterator[ModuleType]:
    for package in PACKAGES:
        path = list(importlib.import_module(package).__path__)
        for found in pkgutil.iter_modules(path):
            if found.name.startswith("test_"):
                yield importlib.import_module(f"{package}.{found.name}")


def rows() -> list[Row]:
    """Return the declarations of all tests, by client."""
    known: dict[tuple[str, str], Row] = {}
    for module in modules():
        for value in vars(module).values():
            if getattr(value, "__module__", "") != module.__name__:
                continue  # imported from another module, where it is counted
            for mark in getattr(value, "pytestmark", ()):
                if mark.name == "tested":
                    _add(known, **mark.kwargs)
    return sorted(known.values(), key=lambda row: (row.how != "runs", row.client.lower()))


def _add(
    known: dict[tuple[str, str], Row],
    *,
    client: str,
    version: str,
    how: str,
    kinds: tuple[str, ...],
    servers: tuple[str, ...],
    note: str,
) -> None:
    row = known.setdefault((client, version), Row(client, version, how))
    row.kinds |= dict.fromkeys(kinds)
    row.servers |= dict.fromkeys(servers)
    if note:
        about = f"{note} ({servers[0]} only)" if len(servers) == 1 else note
        row.notes[about] = None


def render() -> str:
    """Return the page."""
    found = rows()
    clients = [
        "| client | tested with | how | servers | kinds | what |",
        "|---|---|---|---|---|---|",
    ]
    for row in found:
        what = "; ".join(row.notes)
        cells = [row.client, row.version, row.how, ", ".join(row.servers), ", ".join(row.kinds)]
        clients.append(f"| {' | '.join([*cells, what])} |")
    by_kind: dict[str, list[str]] = {}
    for row in found:
        for kind in row.kinds:
            by_kind.setdefault(kind, []).append(row.client)
    kinds = ["| kind | by |", "|---|---|"]
    kinds += [f"| {kind} | {', '.join(by)} |" for kind, by in sorted(by_kind.items())]
    parts = [HEAD, "## Clients\n", *clients, "\n## Kinds they use\n", *kinds, f"\n{LEFT_OUT}"]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(render())
