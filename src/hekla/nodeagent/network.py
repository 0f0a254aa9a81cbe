"""Pod networks, so that all pods of a job can listen on the same port.

*Bridge*: each pod has a network namespace on a bridge of this machine; names and ports behave as on
a cluster. It needs root, the command `ip`, and nft or iptables for masquerading, without which pods
have no outside connections. *Host*: pods use the host network, each with a loopback address; two
pods that listen on the same port of *all* addresses conflict, and `hekla status` reports it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

NAMESPACES = Path("/run/netns")
ROUTES = Path("/proc/net/route")
OCTETS = range(64, 128)
"""The second octet of 10.x.0.0/16, one per cluster on this machine."""

Run = Callable[[list[str], str], str]


class NetworkError(Exception):
    """A network command failed; the message is its output."""


def run(command: list[str], given: str = "") -> str:
    """Run a command; return its output, or raise NetworkError."""
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=20, check=False
    )
    if done.returncode != 0:
        raise NetworkError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


@dataclass(frozen=True, slots=True)
class NetworkSupport:
    """Whether this machine supports the bridge network, and why not."""

    bridge: bool
    reason: str = ""


def network_support() -> NetworkSupport:
    """Return whether pods can have a bridge network with outside connections."""
    if os.geteuid() != 0:
        return NetworkSupport(False, "root is required")
    if shutil.which("ip") is None:
        return NetworkSupport(False, "the command `ip` (iproute2) is not installed")
    if shutil.which("nft") is None and shutil.which("iptables") is None:
        return NetworkSupport(False, "neither nft nor iptables is installed")
    return NetworkSupport(True)


class BridgeNetwork:
    """Network namespaces on a bridge. All operations can be repeated.

    Several clusters can run on one machine, each in its directory. Names are derived from the
    directory, and so is the subnet, unless it is in use.
    """

    def __init__(
        self, directory: Path, execute: Run = run, routes: Callable[[], str] = ROUTES.read_text
    ) -> None:
        mark, self._octet = fingerprint(directory)
        self._run, self._routes = execute, routes
        self._bridge = f"hekla-{mark}"
        self._prefix = f"hekla-{mark}-"
        self.reaches_out = False
        """Whether pods have outside connections; known after `set_up`."""

    @property
    def first(self) -> tuple[int, int, int, int]:
        """The first pod address; final after `set_up`."""
        return (10, self._octet, 0, 2)

    @property
    def _gateway(self) -> str:
        return f"10.{self._octet}.0.1"

    @property
    def _subnet(self) -> str:
        return f"10.{self._octet}.0.0/16"

    def set_up(self) -> None:
        """Create the bridge and the masquerading rules."""
        self._octet = self._free_octet()
        if not Path(f"/sys/class/net/{self._bridge}").exists():
            self._run(
                ["ip", "-batch", "-"],
                f"link add {self._bridge} type bridge\n"
                f"addr add {self._gateway}/16 dev {self._bridge}\n"
                f"link set {self._bridge} up\n",
            )
        with contextlib.suppress(OSError):
            Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        with contextlib.suppress(NetworkError):
            self.reaches_out = self._masquerade()

    def _free_octet(self) -> int:
        """Return the subnet of the existing bridge, or the next unused one."""
        rows = [line.split() for line in self._routes().splitlines()[1:]]
        routes = [(row[0], bytes.fromhex(row[1])[::-1]) for row in rows]  # the kernel's byte order
        own = [to[1] for name, to in routes if name == self._bridge]
        if own:
            return own[0]
        taken = {to[1] for _, to in routes if to[0] == 10}
        wanted = (OCTETS[(OCTETS.index(self._octet) + n) % len(OCTETS)] for n in range(len(OCTETS)))
        return next((octet for octet in wanted if octet not in taken), self._octet)

    def _masquerade(self) -> bool:
        if shutil.which("nft"):
            table = self._bridge
            rules = (
                f"table ip {table} {{ }}\ndelete table ip {table}\n"
                f"table ip {table} {{ chain out {{ type nat hook postrouting priority 100; "
                f"ip saddr {self._subnet} oifname != {self._bridge} masquerade; }} }}\n"
            )
            self._run(["nft", "-f", "-"], rules)
            return True
        if shutil.which("iptables"):
            rule = ["POSTROUTING", "-s", self._subnet, "!", "-o", self._bridge, "-j", "MASQUERADE"]
            try:
                self._run(["iptables", "-t", "nat", "-C", *rule], "")
            except NetworkError:
                self._run(["iptables", "-t", "nat", "-A", *rule], "")
            return True
        return False

    def tear_down(self) -> None:
        """Remove everything that `set_up` and `add` created."""
        self.remove_all_except(())
        with contextlib.suppress(NetworkError):
            self._run(["ip", "link", "del", self._bridge], "")
        if shutil.which("nft"):
            with contextlib.suppress(NetworkError):
                self._run(["nft", "delete", "table", "ip", self._bridge], "")

    def name(self, uid: str) -> str:
        return f"{self._prefix}{uid}"

    def path(self, uid: str) -> Path:
        return NAMESPACES / self.name(uid)

    def add(self, uid: str, address: str) -> Path:
        """Create the namespace of a pod with an address, if it does not exist."""
        path = self.path(uid)
        if path.exists():
            return path
        name, outside = self.name(uid), _link(uid)
        try:
            self._run(
                ["ip", "-batch", "-"],
                f"netns add {name}\n"
                f"link add {outside} type veth peer name eth0 netns {name}\n"
                f"link set {outside} master {self._bridge} up\n",
            )
            self._run(
                ["ip", "-n", name, "-batch", "-"],
                "link set lo up\n"
                f"addr add {address}/16 dev eth0\n"
                "link set eth0 up\n"
                f"route add default via {self._gateway}\n",
            )
        except NetworkError:
            self.remove(uid)
            raise
        return path

    def remove(self, uid: str) -> None:
        """Remove the namespace of a pod, and with it its link."""
        with contextlib.suppress(NetworkError):
            self._run(["ip", "netns", "del", self.name(uid)], "")

    def remove_all_except(self, uids: Iterable[str]) -> None:
        """Remove the namespaces of all other pods."""
        kept = {self.name(uid) for uid in uids}
        for path in NAMESPACES.glob(f"{self._prefix}*") if NAMESPACES.is_dir() else ():
            if path.name not in kept:
                self.remove(path.name.removeprefix(self._prefix))


def fingerprint(directory: Path) -> tuple[str, int]:
    """Return a short hash of a directory, and the octet derived from it."""
    digest = hashlib.sha256(str(directory.absolute()).encode()).hexdigest()
    return digest[:6], OCTETS[int(digest[6:8], 16) % len(OCTETS)]


def _link(uid: str) -> str:
    """Return the name of the outer link; the kernel allows fifteen characters."""
    return "hk" + uid.replace("-", "")[:12]
