"""Start a container, or a command inside a running one, from a specification in a file.

    python -I -S -c 'import sys; sys.path.insert(0, DIR); …; main(FILE)'

The file is written by `hekla.nodeagent.sandbox` and removed here, since it holds the variables.

Note: the caller's variables are the agent's. Those of the container are used only by the last exec,
so they cannot change what the set-up runs.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` imports much more
import errno
import marshal
import os
import sys

from . import linux, privileges
from .root import Root

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes longer than all else here
    from typing import Any

CANNOT_START, CANNOT_RUN, NOT_FOUND = 128, 126, 127
# The first process of a PID namespace ignores signals without a handler. So it is a shell with
# handlers, which `exec` does not pass on to the command below it. Descriptor 9 reports that the
# command is about to run: earlier signals would hit the set-up. The shell's own messages
# ("Terminated") must not be in the command's output.
FIRST_PROCESS = """
trap : TERM INT HUP QUIT
exec 8>&2 2>/dev/null
(echo up >&9; exec "$@" 2>&8 8>&- 9>&-)
exit $?
"""
READY = 9
SHELL = "/bin/sh"
TIOCSCTTY = 0x540E


def main(path: str) -> None:
    with open(path, "rb") as file:
        spec = marshal.load(file)
    os.unlink(path)
    try:
        if spec["mode"] == "launch":
            _launch(spec)
        else:
            _enter(spec)
    except OSError as error:
        sys.stderr.write(f"hekla: {error.strerror or error}{_where(error)}\n")
        sys.stderr.flush()
        os._exit(CANNOT_START)


def wait(control: str, pipe: int) -> None:
    """Wait until the agent says which container to start, and start it."""
    message = os.read(pipe, 4096)
    os.close(pipe)
    if not message:
        _stay_unused(control)
    given = marshal.loads(message)
    write = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    opened = {0: os.open(given["stdin"], given["stdin_flags"])}
    opened[1] = opened[2] = os.open(given["log"], write, 0o600)
    for number, path in given["descriptors"].items():
        opened[number] = os.open(path, os.O_RDONLY)
    for number, descriptor in opened.items():
        os.dup2(descriptor, number)
    for descriptor in set(opened.values()) - set(opened):
        os.close(descriptor)
    main(given["spec"])


def _stay_unused(control: str) -> None:
    """End: the agent has ended. If it had chosen a container already, that has not started."""
    with open(control, "r+") as file:
        exit_file = file.read().strip()
        if exit_file:
            os.unlink(exit_file.removesuffix(".exit") + ".proc")
        file.truncate(0)
    os._exit(0)


def _where(error: OSError) -> str:
    return f": {error.filename}" if error.filename else ""


def _launch(spec: dict[str, Any]) -> None:
    ready = os.open(spec["ready"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    groups = [os.open(each, os.O_WRONLY) for each in spec["cgroups"]]
    os.umask(0o022)
    if spec["network"]:
        network = os.open(spec["network"], os.O_RDONLY)
        linux.setns(network, linux.CLONE_NEWNET)
        os.close(network)
    if spec["namespaces"]:
        linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWUTS | linux.CLONE_NEWIPC)
        linux.set_hostname(spec["hostname"])
        for name, value in spec["sysctls"].items():
            with open(f"/proc/sys/{name.replace('.', '/')}", "w") as file:
                file.write(value)
        root = Root(spec)
        root.build()
        root.enter()
    _join(groups)
    _become(spec)
    if not spec["namespaces"]:
        os.write(ready, b"up\n")
        _run(spec)
    os.dup2(ready, READY)
    if os.access(SHELL, os.X_OK) and all(map(_is_shell_name, spec["variables"])):
        line = [SHELL, "-c", FIRST_PROCESS, "hekla", *spec["command"]]
        os.execve(SHELL, line, spec["variables"])
    _supervise(spec)


def _is_shell_name(name: str) -> bool:
    """Return whether a shell passes a variable on: names such as `discovery.type` it drops."""
    return name.isidentifier() and name.isascii()


def _enter(spec: dict[str, Any]) -> None:
    """Run a command in the namespaces, the cgroup and with the rights of a container."""
    groups = [os.open(each, os.O_WRONLY) for each in spec["cgroups"]]
    os.umask(0o022)
    if os.isatty(0):
        _take_terminal()
    if not spec["pid"]:
        _join(groups)
        _become(spec)
        _run(spec)
    opened = {
        name: os.open(f"/proc/{spec['pid']}/ns/{name}", os.O_RDONLY)
        for name in ("user", "net", "ipc", "uts", "pid", "mnt")
    }
    _join(groups)
    if spec["user_namespace"] == "self":
        import fcntl

        linux.setns(fcntl.ioctl(opened["mnt"], linux.NS_GET_USERNS), linux.CLONE_NEWUSER)
    for name, kind in (
        ("net", linux.CLONE_NEWNET),
        ("ipc", linux.CLONE_NEWIPC),
        ("uts", linux.CLONE_NEWUTS),
        ("pid", linux.CLONE_NEWPID),
        ("mnt", linux.CLONE_NEWNS),
    ):
        # Without root the network is the host's: it cannot be entered, and need not be.
        if name != "net" or spec["user_namespace"] != "self":
            linux.setns(opened[name], kind)
    if spec["image"]:
        linux.prctl(linux.PR_SET_DUMPABLE, 0)  # as in _supervise
    child = os.fork()
    if child:
        _wait(child)
    if spec["user_namespace"] != "none":
        linux.setns(opened["user"], linux.CLONE_NEWUSER)
    _become({**spec, "user_namespace": "none"})
    _run(spec)


def _take_terminal() -> None:
    """Make the terminal at standard input that of this session, for job control and Ctrl-C."""
    import fcntl

    try:  # noqa: SIM105  contextlib would be imported at each start
        fcntl.ioctl(0, TIOCSCTTY, 0)
    except OSError:
        pass  # the terminal of another session, as of a command that is run by hand


def _join(groups: list[int]) -> None:
    """Join the container's cgroup, only now: the memory of this program is not the container's."""
    for descriptor in groups:
        os.write(descriptor, b"0")
        os.close(descriptor)


def _become(spec: dict[str, Any]) -> None:
    privileges.enter_user_namespace(spec)
    privileges.drop(spec)
    try:
        os.chdir(spec["directory"])
    except OSError as error:
        if not spec.get("foreign"):
            raise
        sys.stderr.write(
            f"hekla: {error.strerror}: {spec['directory']}: pods run as users of their namespace "
            "and see no private directories of this machine; use a volume or a directory that "
            "everybody may enter, or start the cluster with --pod-user owner if it is yours alone\n"
        )
        sys.stderr.flush()
        os._exit(CANNOT_START)


def _run(spec: dict[str, Any]) -> None:
    """Become the command."""
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGINT):
        _signal.signal(number, _signal.SIG_DFL)  # Python changes them
    command = spec["command"]
    try:
        _exec(command, spec["variables"])
    except OSError as error:
        what = "not found" if isinstance(error, FileNotFoundError) else error.strerror
        sys.stderr.write(f"{command[0]}: {what}\n")
        sys.stderr.flush()
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN)


def _exec(command: list[str], variables: dict[str, str]) -> None:
    """Become a program, which is looked up in the PATH of the container.

    As os.execvpe, which would import a module: the root may be an image without Python.
    """
    if "/" in command[0]:
        os.execve(command[0], command, variables)
    problem: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for directory in variables.get("PATH", os.defpath).split(":"):
        try:
            os.execve(f"{directory or '.'}/{command[0]}", command, variables)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            problem = error
    raise problem


def _wait(child: int) -> None:
    """Wait for the command, and end as it ended. It ends with this process (PR_SET_PDEATHSIG)."""
    for number in (_signal.SIGINT, _signal.SIGQUIT, _signal.SIGTSTP):
        _signal.signal(number, _signal.SIG_IGN)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _supervise(spec: dict[str, Any]) -> None:
    """Be the first process instead of a shell: wait for the command, and reap others.

    A root may have no shell, and a shell drops variables whose names it does not allow.
    """
    if spec["image"]:
        # Else the container could open this program, the host's Python, by /proc/1/exe.
        linux.prctl(linux.PR_SET_DUMPABLE, 0)
    for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT):
        _signal.signal(number, lambda *_: None)
    child = os.fork()
    if not child:
        for number in (_signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT):
            _signal.signal(number, _signal.SIG_DFL)
        os.write(READY, b"up\n")
        os.close(READY)
        _run(spec)
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
