"""What this machine allows for isolation, and the command lines that make use of it.

With privileges, a container gets its own mount, host-name and process namespaces: volumes appear at
their mount paths, /etc/hosts knows the pods of the namespace, and when the container ends nothing
of it is left. Without, it is a process group that sees the machine as it is; `Abilities` says
which, so that `hekla status` can tell.

What a newcomer gets wrong: the first process of a process namespace ignores signals it has no
handler for. So a shell stands there, which does have one, and the command runs below it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# $1: file for the exit code, $2: where to work; the rest: the command. The shell outlives the
# command on SIGTERM (it has a handler, which `exec` takes away from the command) to note its code.
# The file $HEKLA_UP appears when the command is about to run: earlier signals would hit the set-up.
# Its own remarks ("Terminated") do not belong into the command's output; the subshell is there
# because dash would otherwise redirect them along with the command's.
SUPERVISE = """
trap : TERM INT HUP QUIT
out=$1; dir=$2; shift 2
for group in $HEKLA_CGROUPS; do echo $$ > "$group/cgroup.procs"; done
unset HEKLA_CGROUPS
[ -z "$HEKLA_ENTERS" ] && { : > "$HEKLA_UP"; unset HEKLA_UP; }
if cd "$dir"; then exec 3>&2 2>/dev/null; (exec "$@" 2>&3 3>&-); code=$?; else code=128; fi
echo "$code" > "$out.new" && mv "$out.new" "$out"
exit "$code"
"""

# $1: host name, $2: pairs of source and target as lines "ro|rw<TAB>source<TAB>target".
ENTER = """
trap : TERM INT HUP QUIT
name=$1; mounts=$2; dir=$3; shift 3
hostname "$name" 2>/dev/null
tab=$(printf '\\t')
while IFS="$tab" read -r mode source target; do
  [ -n "$target" ] || continue
  if [ -d "$source" ]; then mkdir -p "$target"; else
    mkdir -p "$(dirname "$target")"; [ -e "$target" ] || : > "$target"; fi
  mount --bind "$source" "$target" || exit 128
  [ "$mode" = ro ] && mount -o remount,ro,bind "$target"
done <<END
$mounts
END
cd "$dir" || exit 128
: > "$HEKLA_UP"
unset HEKLA_UP HEKLA_ENTERS
exec 3>&2 2>/dev/null
(exec "$@" 2>&3 3>&-)
"""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What the kernel lets us do."""

    namespaces: bool = False
    why_not: str = ""


@cache
def abilities() -> Abilities:
    """Try it: permissions, kernels and sandboxes differ too much to be read off anywhere."""
    if shutil.which("unshare") is None:
        return Abilities(why_not="the command `unshare` (util-linux) is not installed")
    probe = ["unshare", *_FLAGS, "sh", "-c", "hostname hekla-probe && mount --bind /tmp /tmp"]
    done = subprocess.run(probe, capture_output=True, text=True, timeout=10, check=False)
    if done.returncode != 0:
        return Abilities(why_not=done.stderr.strip().splitlines()[-1:][0] if done.stderr else "")
    return Abilities(namespaces=True)


_FLAGS = ("--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")


@dataclass(frozen=True, slots=True)
class Mount:
    source: Path
    target: str
    read_only: bool = False


def wrap(
    command: Sequence[str],
    *,
    exit_file: Path,
    directory: str,
    hostname: str,
    mounts: Sequence[Mount],
    root: str = "",
    network: Path | None = None,
    isolate: bool,
) -> list[str]:
    """The whole command line of a container's process."""
    inner = list(command)
    outer_directory = directory
    if isolate:
        lines = "\n".join(
            f"{'ro' if mount.read_only else 'rw'}\t{mount.source}\t{root}{mount.target}"
            for mount in mounts
        )
        if root:
            inner = ["chroot", root, *inner]
            directory = "/"
        inner = [
            "unshare", *_FLAGS, "sh", "-c", ENTER, "hekla", hostname, lines, directory, *inner,
        ]  # fmt: skip
        outer_directory = "/"
    if network is not None:
        inner = ["nsenter", f"--net={network}", *inner]
    return ["sh", "-c", SUPERVISE, "hekla", str(exit_file), outer_directory, *inner]


def enter(pid: int, directory: str, command: Sequence[str], *, root: str = "") -> list[str]:
    """The command line that runs something inside a running container."""
    inside = innermost(pid)
    if inside is None:
        return ["sh", "-c", 'cd "$1" && shift && exec "$@"', "hekla", directory, *command]
    line = ["nsenter", f"--target={inside}", "--mount", "--uts", "--pid", "--net"]
    if root:
        line.append(f"--root={root}")
    return [*line, f"--wd={directory}", *command]


def innermost(pid: int) -> int | None:
    """The first process below `pid` that lives in another process namespace."""
    here = _namespace(os.getpid())
    waiting = [pid]
    while waiting:
        current = waiting.pop(0)
        found = _namespace(current)
        if found and found != here:
            return current
        waiting += _children(current)
    return None


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
