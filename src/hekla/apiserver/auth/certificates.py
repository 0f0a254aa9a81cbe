"""The server's certificate authority and serving certificate, as files.

Created at first start in the data directory; renewed before they expire or when the addresses
change. The CA's key never leaves the directory (mode 0600).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hekla.web.certificates import Pair, needs_renewal, new_authority, new_serving


@dataclass(frozen=True, slots=True)
class Serving:
    """Paths of the files, and the CA for a kubeconfig."""

    certificate: Path
    key: Path
    ca_pem: bytes


def write_private(path: Path, data: bytes) -> None:
    """Write a secret atomically, readable by the owner only."""
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def ensure(directory: Path, names: Iterable[str], now: float) -> Serving:
    """Return certificates for these hosts; create or renew them if needed."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    wanted = sorted(set(names))
    authority = _read(directory, "ca")
    serving = _read(directory, "serving")
    if authority is None or needs_renewal(authority.certificate, now):
        authority, serving = new_authority(now), None
        _write(directory, "ca", authority)
    if serving is None or needs_renewal(serving.certificate, now, wanted):
        serving = new_serving(authority, wanted, now, subject="hekla-apiserver")
        _write(directory, "serving", serving)
    return Serving(directory / "serving.crt", directory / "serving.key", authority.certificate)


def _read(directory: Path, name: str) -> Pair | None:
    try:
        certificate = (directory / f"{name}.crt").read_bytes()
        return Pair(certificate, (directory / f"{name}.key").read_bytes())
    except FileNotFoundError:
        return None


def _write(directory: Path, name: str, pair: Pair) -> None:
    write_private(directory / f"{name}.key", pair.key)
    write_private(directory / f"{name}.crt", pair.certificate)
