"""Levels of the Pod Security Standards, and the policy that a namespace's labels set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from hekla.api.rules.fields import FieldError, FieldErrors, invalid

LEVELS = ("privileged", "baseline", "restricted")
"""From the weakest to the strictest."""
PREFIX = "pod-security.kubernetes.io/"
_VERSION = re.compile(r"latest|v1\.(0|[1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class LevelVersion:
    """A level and the version that the label names; messages show both."""

    level: str
    version: str = "latest"

    def __str__(self) -> str:
        return f"{self.level}:{self.version}"


@dataclass(frozen=True, slots=True)
class Policy:
    """What is refused, what is recorded and what the client is warned of."""

    enforce: LevelVersion
    audit: LevelVersion
    warn: LevelVersion


def default_policy(level: str) -> Policy:
    """Return the policy of namespaces without labels."""
    if level not in LEVELS:
        raise ValueError(f"Pod Security level {level!r}: must be one of {', '.join(LEVELS)}")
    one = LevelVersion(level)
    return Policy(one, one, one)


def read_policy(
    labels: Mapping[str, str], default: Policy
) -> tuple[Policy, tuple[FieldError, ...]]:
    """Return the policy of a namespace, and the labels that are not valid.

    As in Kubernetes an invalid level enforces `restricted`, and audits and warns of nothing; a
    level that is stricter than the default also warns, unless a label says otherwise.
    """
    if not any(label.startswith(PREFIX) for label in labels):
        return default, ()
    errors: list[FieldError] = []
    modes: dict[str, LevelVersion] = {}
    for mode, otherwise in (
        ("enforce", "restricted"),
        ("audit", "privileged"),
        ("warn", "privileged"),
    ):
        found: LevelVersion = getattr(default, mode)
        level, version = labels.get(PREFIX + mode), labels.get(f"{PREFIX}{mode}-version")
        if level is not None:
            if level not in LEVELS:
                at = f"metadata.labels[{PREFIX}{mode}]"
                errors.append(invalid(at, level, f"must be one of {', '.join(LEVELS)}"))
            found = replace(found, level=level if level in LEVELS else otherwise)
        if version is not None:
            known = _VERSION.fullmatch(version) is not None
            if not known:
                at = f"metadata.labels[{PREFIX}{mode}-version]"
                errors.append(invalid(at, version, 'must be "latest" or "v1.x"'))
            found = replace(found, version=version if known else "latest")
        modes[mode] = found
    enforced = labels.get(PREFIX + "enforce")
    if enforced in LEVELS and PREFIX + "warn" not in labels:
        stricter = LEVELS.index(modes["enforce"].level) > LEVELS.index(modes["warn"].level)
        if stricter and f"{PREFIX}warn-version" in labels:
            modes["warn"] = replace(modes["warn"], level=modes["enforce"].level)
        elif stricter:
            modes["warn"] = modes["enforce"]
    return Policy(**modes), tuple(errors)


def check_labels(labels: Mapping[str, str], old: Mapping[str, str] | None) -> FieldErrors:
    """Yield an error for each invalid label that a write of a namespace sets or changes."""
    default = default_policy("privileged")
    errors = read_policy(labels, default)[1]
    if errors and (old is None or read_policy(old, default)[1] != errors):
        yield from errors
