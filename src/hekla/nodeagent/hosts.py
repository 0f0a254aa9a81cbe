"""The hosts files of pods, one per namespace."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from pathlib import Path

from hekla.units.objects import Object


class HostsFiles:
    """The hosts files on disk, which containers see as /etc/hosts."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def remove(self, namespace: str) -> None:
        """Remove the file of a namespace without pods."""
        (self._directory / namespace).unlink(missing_ok=True)

    def write(
        self, namespace: str, pods: Iterable[tuple[Object, str]], endpoints: Iterable[Object]
    ) -> None:
        """Write the file of a namespace in place: containers have it bind-mounted.

        It is overwritten before it is truncated, so that a concurrent reader finds entries in it.
        """
        path = self._directory / namespace
        path.parent.mkdir(exist_ok=True)
        text = hosts_file(pods, endpoints, namespace).encode()
        if not path.exists():
            path.touch()
            path.chmod(0o644)  # containers of other users read it
        with path.open("r+b", buffering=0) as file:
            if file.read() != text:
                os.pwrite(file.fileno(), text, 0)
                file.truncate(len(text))


def hosts_file(
    pods: Iterable[tuple[Object, str]], endpoints: Iterable[Object] = (), namespace: str = ""
) -> str:
    """Return /etc/hosts for one namespace: its pods by name and subdomain, and all services.

    The name of a service resolves to its ready pods. There is no proxy, so clients must use the
    port that the pods listen on.
    """
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost", f"127.0.1.1 {platform.node()}"]
    for pod, address in pods:
        metadata, spec = pod["metadata"], pod["spec"]
        host = spec.get("hostname") or metadata["name"]
        names = [host] if host == metadata["name"] else [host, metadata["name"]]
        if spec.get("subdomain"):
            domain = f"{host}.{spec['subdomain']}"
            names = [f"{domain}.{metadata['namespace']}.svc.cluster.local", domain, *names]
        lines.append(f"{address} {' '.join(names)}")
    for each in endpoints:
        name, where = each["metadata"]["name"], each["metadata"]["namespace"]
        names = [f"{name}.{where}.svc.cluster.local", f"{name}.{where}.svc", f"{name}.{where}"]
        if where == namespace:
            names.append(name)
        for subset in each.get("subsets") or ():
            lines += [f"{a['ip']} {' '.join(names)}" for a in subset.get("addresses") or ()]
    return "\n".join(lines) + "\n"
