"""The isolation that this machine supports, and how containers are started in it.

If the kernel allows it, a container has its own mount, UTS, IPC and PID namespaces: volumes are at
their mount paths, /etc/hosts has the pods of the namespace, and all processes end with the
container. Root creates these namespaces directly, other users inside a user namespace. Otherwise a
container is a process group on the host; `IsolationSupport` has the reason, for `hekla status`.

`container_init` does the work from a specification in a file. Its helpers run with the agent's
variables, never with those of the container.
"""

from __future__ import annotations

import marshal
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from hekla.nodeagent.seccomp import runtime_default
from hekla.nodeagent.security_context import Credentials

# $1: file for the exit code; the rest: the command. The shell survives SIGTERM (by its handler,
# which `exec` does not pass on to the command) to write the exit code. The shell's own messages
# ("Terminated") must not be in the command's output; the subshell exists because dash would
# otherwise redirect them along with the command's output.
SUPERVISE = """
trap : TERM INT HUP QUIT
out=$1; shift
exec 8>&2 2>/dev/null
(exec "$@" 2>&8 8>&-); code=$?
echo "$code" > "$out.new" && mv "$out.new" "$out"
exit "$code"
"""
# The same for a process that waits for its container. $1: a file that names the file for the exit
# code, once there is a container. Output and input are /dev/null here.
SUPERVISE_LATER = """
trap : TERM INT HUP QUIT
control=$1; shift
(exec "$@"); code=$?
read -r out < "$control"; rm -f "$control"
[ -n "$out" ] || exit 0
echo "$code" > "$out.new" && mv "$out.new" "$out"
exit "$code"
"""
BOOT = "import sys; sys.path.insert(0, {!r}); from container_init.main import main, wait; {}"
BOOT_PROBE = "import sys; sys.path.insert(0, {!r}); from container_init.image_root import probe; {}"

Isolation = Literal["none", "root", "user"]
"""How containers are isolated: not at all, as root, or in a user namespace."""

_PID_FLAGS = ("--pid", "--fork", "--kill-child")
_USER_FLAGS = ("--user", "--map-root-user", *_PID_FLAGS)
_PROBE = "hostname hekla-probe && mount --bind /tmp /tmp"
USER_NAMESPACE_FD = 7
"""The descriptor at which a container finds its user namespace."""
PIPE_FD = 6
"""The descriptor at which a waiting process reads what to run."""


@dataclass(frozen=True, slots=True)
class IsolationSupport:
    """The isolation that the kernel supports, and why not more."""

    isolation: Isolation = "none"
    reason: str = ""

    @property
    def namespaces(self) -> bool:
        return self.isolation != "none"


@cache
def isolation_support() -> IsolationSupport:
    """Try it out: permissions, kernels and sandboxes differ too much for other checks."""
    if shutil.which("unshare") is None:
        return IsolationSupport(reason="the command `unshare` (util-linux) is not installed")
    ways: tuple[Isolation, ...] = ("root", "user") if os.geteuid() == 0 else ("user",)
    why = ""
    for way in ways:
        last = []
        if way == "user":
            last = ["unshare", "--user", f"--map-user={os.geteuid()}"]
        probe = [*_unshare(way), "--mount", "--uts", "--mount-proc", "sh", "-c"]
        done = subprocess.run(
            [*probe, _PROBE + ' && exec "$@"', "hekla", *last, "true"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
        if done.returncode == 0:
            return IsolationSupport(way)
        why = why or (done.stderr.strip().splitlines() or [""])[-1]
    return IsolationSupport(reason=why)


def _unshare(way: Isolation) -> list[str]:
    return ["unshare", *(_USER_FLAGS if way == "user" else _PID_FLAGS)]


@dataclass(frozen=True, slots=True)
class Mount:
    """A bind mount in a container: `source`, or `sub_path` inside it, at `target`."""

    source: Path
    target: str
    read_only: bool = False
    sub_path: str = ""


@dataclass(frozen=True, slots=True)
class Rights:
    """Who a container is on the host."""

    credentials: Credentials
    isolate: Isolation
    base: int | None = None
    """The first user id of its user namespace on the host; None for the host's own."""
    user_namespace: int = -1
    """A descriptor of it."""

    @property
    def host_uid(self) -> int:
        return self.credentials.uid + (self.base or 0)

    @property
    def host_gid(self) -> int:
        return self.credentials.gid + (self.base or 0)

    @property
    def is_foreign(self) -> bool:
        """Whether it has other rights on the host's files than the agent."""
        return self.base is not None or self.credentials.uid != os.geteuid()

    def specification(self) -> dict[str, Any]:
        """Return the part of a specification that gives up rights."""
        given, can_change = self.credentials, os.geteuid() == 0 and self.isolate != "user"
        kind = "given" if self.base is not None else "self" if self.isolate == "user" else "none"
        mask = given.capability_mask
        return {
            "user_namespace": kind,
            "user_namespace_fd": USER_NAMESPACE_FD,
            "self": (os.geteuid(), os.getegid()),
            "uid": given.uid if can_change else None,
            "gid": given.gid if can_change else None,
            "groups": list(given.groups) if can_change and given.groups is not None else None,
            "capabilities": mask if can_change or self.isolate == "user" else None,
            "no_new_privileges": given.no_new_privileges,
            "seccomp": runtime_default() if given.seccomp else b"",
        }


@dataclass(frozen=True, slots=True)
class ImageRoot:
    """The root file system of a container that runs an image."""

    layers: Sequence[Path]
    """Unpacked layers, topmost first."""
    writable: Path
    """A directory with `upper` and `work`, empty, for what the container changes."""
    directory: str = "/"
    """Created inside if it does not exist."""
    links: Sequence[tuple[str, str]] = ()
    """Symbolic links that are made inside: their paths and targets."""

    def specification(self) -> dict[str, Any]:
        return {
            "layers": [str(path) for path in self.layers],
            "writable": str(self.writable),
            "directory": self.directory,
            "links": list(self.links),
        }


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a container sees of the machine."""

    hostname: str
    mounts: Sequence[Mount]
    hidden: Sequence[Path] = ()
    """Directories that are empty inside."""
    private: Sequence[str] = ()
    """Top-level directories that are the container's own."""
    root: str = ""
    """The root directory; empty for the host's."""
    image: ImageRoot | None = None
    """The root of an image instead."""
    network: Path | None = None
    sysctls: Mapping[str, str] = field(default_factory=dict)
    devices: Sequence[str] = ()
    """Device nodes beside the usual ones, relative to /dev."""


@dataclass(frozen=True, slots=True)
class Command:
    """What runs in a container."""

    words: Sequence[str]
    variables: Mapping[str, str]
    directory: str
    cgroups: Sequence[Path] = ()

    def specification(self) -> dict[str, Any]:
        return {
            "command": list(self.words),
            "variables": dict(self.variables),
            "directory": self.directory,
            "cgroups": [str(path / "cgroup.procs") for path in self.cgroups],
        }


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a container."""

    line: list[str]
    spec: Path
    """The file with its specification, which `line` names."""


def launch(
    command: Command,
    surroundings: Surroundings,
    rights: Rights,
    *,
    scratch: Path,
    ready: Path,
    exit_file: Path,
) -> Launch:
    """Return how to start a container process. It writes `ready` before the command runs."""
    isolate = rights.isolate
    spec = {
        "mode": "launch",
        "namespaces": isolate != "none",
        "ready": str(ready),
        "scratch": str(scratch),
        "hostname": surroundings.hostname,
        "network": str(surroundings.network or ""),
        "sysctls": dict(surroundings.sysctls),
        "base": surroundings.root or "/",
        "image": surroundings.image and surroundings.image.specification(),
        "root_owner": (rights.base or 0, rights.base or 0),
        "foreign": rights.is_foreign,
        "privileged": rights.credentials.privileged,
        "read_only_root": rights.credentials.read_only_root,
        "private": list(surroundings.private),
        "devices": list(surroundings.devices),
        "hidden": [str(path) for path in surroundings.hidden],
        "overlay_options": overlay_options(isolate),
        "mounts": [
            {
                "source": str(mount.source),
                "target": mount.target,
                "read_only": mount.read_only,
                "sub_path": mount.sub_path,
            }
            for mount in surroundings.mounts
        ],
        **command.specification(),
        **rights.specification(),
    }
    line = [] if isolate == "none" else _unshare(isolate)
    path = _write(spec, scratch.parent)
    return Launch(["sh", "-c", SUPERVISE, "hekla", str(exit_file), *line, *_boot(path)], path)


def wait_to_launch(control: Path, isolate: Isolation) -> list[str]:
    """Return the command line of a process that waits for its container (`warm_starts`)."""
    python = _python(f"wait({str(control)!r}, {PIPE_FD})")
    return ["sh", "-c", SUPERVISE_LATER, "hekla", str(control), *_unshare(isolate), *python]


def overlay_options(isolate: Isolation) -> str:
    """Return the options that an overlay needs: in a user namespace, attributes of users."""
    return "userxattr," if isolate == "user" else ""


def image_support(directory: Path, isolate: Isolation, user_namespace: int | None) -> str:
    """Return why layers in a directory cannot be the root of a container; empty if they can.

    `user_namespace` is a descriptor of the one that pods enter, if they have one. OSError if it
    cannot be tried out now.
    """
    if isolate == "none":
        return "mount and PID namespaces are required"
    call = "probe(sys.argv[1], sys.argv[2], int(sys.argv[3]))"
    boot = BOOT_PROBE.format(str(Path(__file__).parent), call)
    first = ["unshare", "--user", "--map-root-user"] if isolate == "user" else []
    where = Path(tempfile.mkdtemp(prefix="probe-", dir=directory))
    number = -1 if user_namespace is None else user_namespace
    words = [sys.executable, "-I", "-S", "-c", boot, str(where), overlay_options(isolate)]
    try:
        done = subprocess.run(
            [*first, *words, str(number)],
            pass_fds=() if user_namespace is None else (user_namespace,),
            env=helper_variables(),
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError("whether images run here is not known yet: this machine is slow") from error
    finally:
        shutil.rmtree(where, ignore_errors=True)
    return (done.stderr.strip().splitlines() or [""])[-1] if done.returncode else ""


def enter(
    pid: int, command: Command, rights: Rights, *, directory: Path, in_image: bool = False
) -> list[str]:
    """Return the command line that runs a command inside a running container."""
    inside = innermost(pid) if rights.isolate != "none" else 0
    if inside is None:
        raise ProcessLookupError("the container is ending")
    spec = {
        "mode": "enter",
        "pid": inside,
        "image": in_image,
        **command.specification(),
        **rights.specification(),
    }
    return _boot(_write(spec, directory))


def _write(spec: dict[str, Any], directory: Path) -> Path:
    """Write a specification to a new file."""
    descriptor, path = tempfile.mkstemp(suffix=".spec", dir=directory)
    with os.fdopen(descriptor, "wb") as file:
        marshal.dump(spec, file)
    return Path(path)


def _boot(spec: Path) -> list[str]:
    """Return the command line that carries out a specification."""
    return _python(f"main({str(spec)!r})")


def _python(call: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", BOOT.format(str(Path(__file__).parent), call)]


def helper_variables() -> dict[str, str]:
    """Return the variables of the programs that set up a container."""
    return {"PATH": os.environ.get("PATH") or os.defpath, "LC_ALL": "C"}


def innermost(pid: int) -> int | None:
    """Return the first process below `pid` in another PID namespace."""
    here = _namespace(os.getpid())
    waiting = [pid]
    while waiting:
        current = waiting.pop(0)
        found = _namespace(current)
        if found and found != here:
            return current
        waiting += _children(current)
    return None


def command_of(pid: int) -> int | None:
    """Return the process of the command of a container that is set up: the first child inside."""
    inner = innermost(pid)
    children = _children(inner) if inner is not None else []
    return children[0] if children else None


def _namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]
