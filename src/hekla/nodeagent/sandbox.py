"""The isolation that this machine supports, and the command lines that use it.

If the kernel allows it, a container has its own mount, UTS and PID namespaces: volumes are at their
mount paths, /etc/hosts has the pods of the namespace, and all processes end with the container.
Root creates these namespaces directly, other users inside a user namespace. Otherwise a container
is a process group on the host; `IsolationSupport` has the reason, for `hekla status`.

Note: the first process of a PID namespace ignores signals without a handler. So it is a shell with
handlers, and the command runs below it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

# $1: file for the exit code, $2: working directory; the rest: the command. The shell survives
# SIGTERM (by its handler, which `exec` does not pass on to the command) to write the exit code. The
# file $HEKLA_UP appears when the command is about to run: earlier signals would hit the set-up. The
# subshell that becomes the command creates it: a signal ends that subshell, the outer shells
# survive. The shell's own messages ("Terminated") must not be in the command's output; the subshell
# exists because dash would otherwise redirect them along with the command's output.
SUPERVISE = """
trap : TERM INT HUP QUIT
out=$1; dir=$2; shift 2
for group in $HEKLA_CGROUPS; do echo $$ > "$group/cgroup.procs"; done
unset HEKLA_CGROUPS
begin() {
  [ -z "$HEKLA_ENTERS" ] && { : > "$HEKLA_UP"; unset HEKLA_UP; }
  exec "$@" 2>&3 3>&-
}
if cd "$dir"; then exec 3>&2 2>/dev/null; (begin "$@"); code=$?; else code=128; fi
echo "$code" > "$out.new" && mv "$out.new" "$out"
exit "$code"
"""

# $1: host name, $2: mounts as lines "ro|rw<TAB>source<TAB>target", $3: working directory, $4: an
# empty directory of the pod; the rest: the command.
#
# A mount path that the host does not have must not be created on the host. `place` creates it where
# only this container sees it: below / in a new root that mirrors the old one; elsewhere in an
# overlay on the nearest existing directory, or, where overlays are refused (in a user namespace,
# over a directory with mounts), in a mirror.
#
# An overlay may cover sources of other mounts, $HEKLA_UP and $4. They are bind-mounted into $4
# before anything is covered, and then accessed through the working directory, which nothing can
# cover (`mount -c`: paths are not canonicalized). A new root comes before all overlays.
ENTER = """
trap : TERM INT HUP QUIT
name=$1; mounts=$2; dir=$3; scratch=$4; shift 4
up=$HEKLA_UP
hostname "$name" 2>/dev/null
tab=$(printf '\\t')
newline='
'
made=
ours() {
  [ "$1" = / ] && { [ -n "$rooted" ]; return; }
  old=$IFS; IFS=$newline
  for one in $made; do case "$1/" in "$one"/*) IFS=$old; return 0;; esac; done
  IFS=$old; return 1
}
hold() {
  if [ -d "$1" ]; then mkdir "from/$4"; else : > "from/$4"; fi && mount --bind "$1" "from/$4"
}
own_scratch() {
  [ -z "$scratched" ] || return 0
  mount -t tmpfs -o mode=755 tmpfs "$scratch" && cd "$scratch" && mkdir from || return 1
  before=$number; each hold; number=$before; scratched=1
  hold "${HEKLA_UP%/*}" "" "" up && up=from/up/${HEKLA_UP##*/}
}
mirror() {
  for entry in "$1"/* "$1"/.[!.]*; do
    copy=$2/${entry##*/}
    if [ -L "$entry" ]; then cp -P "$entry" "$copy"
    elif [ -d "$entry" ]; then mkdir "$copy" && mount --rbind "$entry" "$copy"
    elif [ -e "$entry" ]; then : > "$copy" && mount --bind "$entry" "$copy"; fi
  done
}
own_root() {
  new=$scratch/root; mkdir "$new" && mount --bind "$new" "$new" || return 1
  mirror "" "$new"
  mkdir "$new/.old" && cd "$new" && pivot_root . .old && cd / && umount -l /.old && rmdir /.old
  rooted=1; cd "$scratch"
}
cover() {
  layer=$(mktemp -d ./XXXXXX) && mkdir "$layer/upper" "$layer/work" || return 1
  if ! mount -t overlay overlay 2>/dev/null -o \
    "${HEKLA_OVERLAY}lowerdir=$1,upperdir=$layer/upper,workdir=$layer/work" "$1"
  then mirror "$1" "$layer/upper" && mount -c --rbind "$layer/upper" "$1" || return 1; fi
  made="$made$newline$1"
}
nearest() { at=$1; while [ ! -e "$at" ]; do at=$(dirname "$at"); done; }
root() {
  [ -e "$2" ] && return
  nearest "$2"
  [ "$at" != / ] || ours / || { own_scratch && own_root; }
}
place() {
  [ -e "$2" ] && return
  nearest "$2"
  ours "$at" || { own_scratch && cover "$at"; } || return 1
  if [ -d "$1" ]; then mkdir -p "$2"; else mkdir -p "$(dirname "$2")" && : > "$2"; fi || return 1
  while [ "$(dirname "$2")" != "$at" ]; do set -- "$1" "$(dirname "$2")"; done
  made="$made$newline$2"
}
each() {
  number=0
  while IFS="$tab" read -r mode source target; do
    number=$((number + 1))
    [ -z "$target" ] || "$1" "$source" "$target" "$mode" "$number" || exit 128
  done <<END
$mounts
END
}
attach() {
  place "$1" "$2" || return 1
  if [ -n "$scratched" ]; then set -- "from/$4" "$2" "$3"; fi
  mount -c --bind "$1" "$2" || return 1
  made="$made$newline$2"
  [ "$3" != ro ] || mount -o remount,ro,bind "$2"
}
each root
each place
each attach
exec 3>&2 2>/dev/null
begin() {
  : > "$up"
  cd "$dir" 2>&3 || exit 128
  unset HEKLA_UP HEKLA_ENTERS HEKLA_OVERLAY
  exec "$@" 2>&3 3>&-
}
(begin "$@")
"""

Isolation = Literal["none", "root", "user"]
"""How containers are isolated: not at all, as root, or in a user namespace."""

_FLAGS = ("--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
_USER_FLAGS = ("--user", "--map-root-user", *_FLAGS)
_PROBE = "hostname hekla-probe && mount --bind /tmp /tmp"


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
        probe = [*_unshare(way), "sh", "-c", _PROBE + ' && exec "$@"', "hekla"]
        done = subprocess.run(
            [*probe, *_as_oneself(way), "true"],
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
    return ["unshare", *(_USER_FLAGS if way == "user" else _FLAGS)]


def _as_oneself(way: Isolation) -> list[str]:
    """Return the command that drops root inside the user namespace, which only the set-up needs."""
    if way != "user":
        return []
    return ["unshare", "--user", f"--map-user={os.geteuid()}", f"--map-group={os.getegid()}"]


@dataclass(frozen=True, slots=True)
class Mount:
    """A bind mount in a container."""

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
    scratch: Path,
    root: str = "",
    network: Path | None = None,
    isolate: Isolation,
) -> list[str]:
    """Return the command line of a container process."""
    inner = list(command)
    outer_directory = directory
    if isolate != "none":
        lines = "\n".join(
            f"{'ro' if mount.read_only else 'rw'}\t{mount.source}\t{root}{mount.target}"
            for mount in mounts
        )
        if root:
            inner = ["chroot", root, *inner]
            directory = "/"
        inner = [
            *_unshare(isolate), "sh", "-c", ENTER, "hekla", hostname, lines, directory,
            str(scratch), *_as_oneself(isolate), *inner,
        ]  # fmt: skip
        outer_directory = "/"
    if network is not None:
        inner = ["nsenter", f"--net={network}", *inner]
    return ["sh", "-c", SUPERVISE, "hekla", str(exit_file), outer_directory, *inner]


def variables(isolate: Isolation) -> dict[str, str]:
    """Return the variables for the set-up; they are unset before the command runs."""
    if isolate == "none":
        return {}
    # In a user namespace overlays need the option userxattr.
    return {"HEKLA_ENTERS": "1", "HEKLA_OVERLAY": "userxattr," if isolate == "user" else ""}


def enter(
    pid: int, directory: str, command: Sequence[str], *, isolate: Isolation, root: str = ""
) -> list[str]:
    """Return the command line that runs a command inside a running container."""
    inside = innermost(pid)
    if inside is None:
        return ["sh", "-c", 'cd "$1" && shift && exec "$@"', "hekla", directory, *command]
    line = ["nsenter", f"--target={inside}", "--mount", "--uts", "--pid"]
    # The host network cannot be entered from a user namespace, and need not be.
    line += ["--user", "--preserve-credentials"] if isolate == "user" else ["--net"]
    if root:
        line.append(f"--root={root}")
    return [*line, f"--wd={directory}", *command]


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
