"""Volcano's CustomResourceDefinitions: the YAML in this folder, and a quick way to load them.

The YAML files are for people, Helm and `kubectl apply`; `load` reads the same objects from one
JSON file in a fiftieth of the time. Both are written by tools/schemas: change the tables there,
never these files. The one thing a newcomer gets wrong: loaded objects are shared by the whole
process, so copy one before you change it.
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
    """Every CRD object, in order of group and plural; read once."""
    by_file: dict[str, dict[str, Any]] = msgspec.json.decode(_DATA.read_bytes())
    return [by_file[name] for name in sorted(by_file)]


def find(group: str, kind: str) -> dict[str, Any] | None:
    """The CRD of one kind, or None when Volcano has no such kind."""
    for crd in load():
        if crd["spec"]["group"] == group and crd["spec"]["names"]["kind"] == kind:
            return crd
    return None


def manifests() -> list[Path]:
    """The YAML files, for tools that apply them as they are."""
    return sorted(_HERE.glob("*.yaml"))
