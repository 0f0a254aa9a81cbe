"""The type of a plain API object: decoded JSON, as sent by clients and stored by the server."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]
"""An API object as plain data. `hekla.api` has typed models of known kinds."""
