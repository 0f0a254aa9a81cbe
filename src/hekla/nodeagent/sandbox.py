"""What this machine allows for isolation, and the command lines that make use of it.

Where the kernel allows it, a container gets its own mount, host-name and process namespaces:
volumes appear at their mount paths, /etc/hosts knows the pods of the namespace, and when the
container ends nothing of it is left. Root makes them as it is; others inside a user namespace of
their own. Where neither works, a container is a process group that sees the machine as it is;
`Abilities` says which, so that `hekla status` can tell.

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
from typing import Literal

# $1: file for the exit code, $2: where to work; the rest: the command. The shell outlives the
# command on SIGTERM (it has a handler, which `exec` takes away from the command) to note its code.
# The file $HEKLA_UP appears when the command is about to run: earlier signals would hit the set-up.
# It is made in the subshell that becomes the command: a signal ends that, the shells above live on.
# Its own remarks ("Terminated") do not belong into the command's output; the subshell is there
# because dash would otherwise redirect them along with the command's.
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

# $1: host name, $2: mounts as lines "ro|rw<TAB>source<TAB>target", $3: where to work, $4: an empty
# directory of the pod's own; the rest: the command.
#
# A mount path that the machine does not have must not be made on the machine. `place` makes it on
# what only this container sees: below / that is a new root that mirrors the old one, below
# anything else an overlay on the nearest directory that exists, or where overlays are refused (in a
# user namespace, over a directory with mounts of its own) a mirror again.
#
# What is covered so may hold sources of other mounts, $HEKLA_UP and $4. They are held in $4 before
# anything is covered, and from then on found from the working directory, which nothing can cover
# (`mount -c`: by the path as it is written). A new root comes before all covers.
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

Way = Literal["none", "root", "user"]
"""How containers are isolated: not at all, with root's rights, or in a user namespace."""

_FLAGS = ("--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
_USER_FLAGS = ("--user", "--map-root-user", *_FLAGS)
_PROBE = "hostname hekla-probe && mount --bind /tmp /tmp"


@dataclass(frozen=True, slots=True)
class Abilities:
    """What the kernel lets us do."""

    way: Way = "none"
    why_not: str = ""

    @property
    def namespaces(self) -> bool:
        return self.way != "none"


@cache
def abilities() -> Abilities:
    """Try it: permissions, kernels and sandboxes differ too much to be read off anywhere."""
    if shutil.which("unshare") is None:
        return Abilities(why_not="the command `unshare` (util-linux) is not installed")
    ways: tuple[Way, ...] = ("root", "user") if os.geteuid() == 0 else ("user",)
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
            return Abilities(way)
        why = why or (done.stderr.strip().splitlines() or [""])[-1]
    return Abilities(why_not=why)


def _unshare(way: Way) -> list[str]:
    return ["unshare", *(_USER_FLAGS if way == "user" else _FLAGS)]


def _as_oneself(way: Way) -> list[str]:
    """Inside its user namespace the set-up runs as root; the command runs as whom it belongs to."""
    if way != "user":
        return []
    return ["unshare", "--user", f"--map-user={os.geteuid()}", f"--map-group={os.getegid()}"]


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
    scratch: Path,
    root: str = "",
    network: Path | None = None,
    isolate: Way,
) -> list[str]:
    """The whole command line of a container's process."""
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


def variables(isolate: Way) -> dict[str, str]:
    """What the set-up is told by its environment; the command sees none of it."""
    if isolate == "none":
        return {}
    # Overlays in a user namespace keep their marks where its owner may write them.
    return {"HEKLA_ENTERS": "1", "HEKLA_OVERLAY": "userxattr," if isolate == "user" else ""}


def enter(
    pid: int, directory: str, command: Sequence[str], *, isolate: Way, root: str = ""
) -> list[str]:
    """The command line that runs something inside a running container."""
    inside = innermost(pid)
    if inside is None:
        return ["sh", "-c", 'cd "$1" && shift && exec "$@"', "hekla", directory, *command]
    line = ["nsenter", f"--target={inside}", "--mount", "--uts", "--pid"]
    # The machine's own network cannot be entered from within a user namespace, and need not be.
    line += ["--user", "--preserve-credentials"] if isolate == "user" else ["--net"]
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
