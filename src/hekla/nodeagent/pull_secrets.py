"""Logins to registries: in the Secrets that a pod names, or of the user who runs hekla. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hekla.images.reference import Reference
from hekla.images.transfer import Credentials
from hekla.units.objects import Object

KINDS = {
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
    "kubernetes.io/dockercfg": ".dockercfg",
}
_DOCKER_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io")


def secret_names(pod: Object) -> list[str]:
    """Return the names of a pod's pull secrets."""
    given = pod["spec"].get("imagePullSecrets") or ()
    return [str(each["name"]) for each in given if each.get("name")]


def find_login(secrets: Iterable[Object], reference: Reference) -> Credentials | None:
    """Return the login for an image: the one for the longest matching prefix of its name."""
    best: tuple[int, Credentials] | None = None
    for secret in secrets:
        for key, entry in _auths(secret).items():
            length, login = _match(key, reference), _login(entry)
            if length and login is not None and (best is None or length > best[0]):
                best = length, login
    return best[1] if best else None


def own_login_file(environ: Mapping[str, str], home: Path) -> Path | None:
    """Return the file with the logins of a user, as `skopeo login` or `docker login` write it."""
    candidates = [environ.get("REGISTRY_AUTH_FILE", "")]
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        candidates.append(f"{runtime}/containers/auth.json")
    candidates.append(str(home / ".config/containers/auth.json"))
    candidates.append(f"{environ.get('DOCKER_CONFIG') or home / '.docker'}/config.json")
    found = (Path(each) for each in candidates if each and os.access(each, os.R_OK))
    return next(found, None)


def _auths(secret: Object) -> Mapping[str, Any]:
    """Return the entries of a Secret by registry; none of one that cannot be read."""
    key = KINDS.get(str(secret.get("type")))
    packed = (secret.get("data") or {}).get(key) if key else None
    try:
        found = json.loads(base64.b64decode(packed or ""))
    except (ValueError, TypeError, RecursionError):
        return {}
    if key == ".dockerconfigjson" and isinstance(found, dict):
        found = found.get("auths")
    return found if isinstance(found, dict) else {}


def _match(key: str, reference: Reference) -> int:
    """Return the length of the prefix that a key covers; 0 if it is another registry's."""
    plain = key.split("://", 1)[-1].rstrip("/")
    registry, _, path = plain.partition("/")
    if path in ("v1", "v2"):
        path = ""
    if registry in _DOCKER_HUB:
        registry = "docker.io"
    if registry != reference.registry:
        return 0
    if path and not f"{reference.repository}/".startswith(f"{path}/"):
        return 0
    return len(registry) + len(path)


def _login(entry: Any) -> Credentials | None:
    if not isinstance(entry, dict):
        return None
    if isinstance(entry.get("auth"), str) and entry["auth"]:
        try:
            name, colon, password = base64.b64decode(entry["auth"]).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        return Credentials(name, password.rstrip("\0")) if colon else None
    user, secret = entry.get("username"), entry.get("password")
    if isinstance(user, str) and isinstance(secret, str) and user:
        return Credentials(user, secret)
    return None
