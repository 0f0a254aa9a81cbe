"""Normalize responses: replace identities, times, versions and addresses.

Identities are numbered in the order of their first appearance, so that two responses about the same
object agree, and an update without a change differs from one with a change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_GENERATED = re.compile(r"(-gen-)[a-z0-9]{5}\b")
_PEM = re.compile(r"-----BEGIN .*-----\s*$", re.S)
_SERVICE_IP = re.compile(r"\b10\.\d+\.\d+\.\d+\b")
_VERSION = re.compile(r"(ResourceVersion in (?:precondition|object meta): )(\d+)")
_UNKNOWN_VERSION = re.compile(r"(resource version: |resourceVersion: )\d+( \(\d+\))?")
_CURRENT = re.compile(r"(current: )\d+")


_SERVERS_OWN = ("kube-root-ca.crt", "default")
"""Created in every namespace, by a controller there and by the server here."""


@dataclass
class Normal:
    """The numbering of the identities of one server in one episode."""

    identities: dict[str, str] = field(default_factory=dict)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)

    def of(self, value: Any) -> Any:
        """Return the value with stable names."""
        return self._walk(value, ())

    def _walk(self, value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            made = {key: self._field(key, item, value, path) for key, item in value.items()}
            return self._generated(made)
        if isinstance(value, list):
            return [self._walk(item, path) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def _field(self, key: str, item: Any, within: dict[str, Any], path: tuple[str, ...]) -> Any:
        if key == "resourceVersion" and isinstance(item, str):
            # The version of a list changes with every write.
            if len(path) < 2 and "uid" not in within:
                return "RV"
            return self._version(item, str(within.get("uid")))
        if key == "managedFields" and isinstance(item, list):
            # Sorted by time, which differs between the servers.
            if within.get("name") in _SERVERS_OWN:
                return "SERVER"
            plain = [{k: v for k, v in entry.items() if k != "time"} for entry in item]
            return self._walk(sorted(plain, key=_who), (*path, key))
        if key == "causes" and isinstance(item, list) and all(map(_is_conflict, item)):
            # kube-apiserver walks over a map of the other managers.
            item = sorted(item, key=lambda cause: str(cause.get("field")))
        if key == "continue" and item:
            return "CONTINUE"
        if key in ("nodePort", "healthCheckNodePort") and isinstance(item, int):
            return "PORT"
        if key == "remainingItemCount":
            return item
        return self._walk(item, (*path, key))

    def _generated(self, made: dict[str, Any]) -> dict[str, Any]:
        prefix, name = made.get("generateName"), made.get("name")
        if isinstance(prefix, str) and isinstance(name, str) and name.startswith(prefix):
            made["name"] = prefix + "#" * (len(name) - len(prefix))
        return made

    def _version(self, text: str, uid: str) -> str:
        """Return the number of this version among the versions seen of the object."""
        if not text.isdigit() or text == "0":
            return text
        seen = self.versions.setdefault(uid, {})
        return seen.setdefault(text, f"rv{len(seen)}")

    def text(self, text: str) -> str:
        text = _UUID.sub(lambda m: self._identity(m[0]), text)
        text = _TIME.sub("TIME", text)
        text = _GENERATED.sub(r"\1#####", text)
        text = _PEM.sub("PEM", text)
        text = _SERVICE_IP.sub("IP", text)
        text = _VERSION.sub(r"\1RV", text)
        text = _UNKNOWN_VERSION.sub(r"\1RV", text)
        return _CURRENT.sub(r"\1RV", text)

    def _identity(self, uid: str) -> str:
        if uid.startswith("00000000-"):
            return uid
        return self.identities.setdefault(uid, f"uid{len(self.identities)}")


def _is_conflict(cause: Any) -> bool:
    return isinstance(cause, dict) and cause.get("reason") == "FieldManagerConflict"


def _who(entry: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(entry.get(key)) for key in ("operation", "manager", "subresource"))


@dataclass(frozen=True, slots=True)
class Difference:
    """One path at which two responses differ."""

    path: str
    real: Any
    ours: Any

    def __str__(self) -> str:
        return f"{self.path}: real {_short(self.real)}, ours {_short(self.ours)}"


ABSENT = "(absent)"


def differences(real: Any, ours: Any, path: str = "") -> list[Difference]:
    if isinstance(real, dict) and isinstance(ours, dict):
        found = []
        for key in sorted({*real, *ours}):
            found += differences(real.get(key, ABSENT), ours.get(key, ABSENT), f"{path}.{key}")
        return found
    if isinstance(real, list) and isinstance(ours, list) and len(real) == len(ours):
        found = []
        for index, (one, other) in enumerate(zip(real, ours, strict=True)):
            found += differences(one, other, f"{path}[{index}]")
        return found
    return [] if real == ours else [Difference(path, real, ours)]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 600 else text[:600] + "…"
