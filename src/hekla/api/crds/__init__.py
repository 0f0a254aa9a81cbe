"""Volcano's CustomResourceDefinitions: the YAML files in this directory, and `load`.

The YAML files are for users, Helm and `kubectl apply`; `load` reads the same objects from one JSON
file in a fiftieth of the time. tools/schemas writes both: change the tables there.

Note: loaded objects are shared by the process; copy one before changing it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

_HERE = Path(__file__).parent
_DATA = _HERE.parent / "data" / "crds.json"


@cache
def load() -> list[dict[str, Any]]:
    """Return all CRDs, sorted by group and plural; read once."""
    by_file: dict[str, dict[str, Any]] = msgspec.json.decode(_DATA.read_bytes())
    return [by_file[name] for name in sorted(by_file)]


def find(group: str, kind: str) -> dict[str, Any] | None:
    """Return the CRD of a kind, or None."""
    for crd in load():
        if crd["spec"]["group"] == group and crd["spec"]["names"]["kind"] == kind:
            return crd
    return None


def manifests() -> list[Path]:
    """Return the YAML files."""
    return sorted(_HERE.glob("*.yaml"))
