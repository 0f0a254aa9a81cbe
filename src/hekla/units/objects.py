"""The type of a plain API object: decoded JSON, as clients send it and the store keeps it."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]
"""One API object as plain data. Read the fields of a known kind through `hekla.api` models."""
