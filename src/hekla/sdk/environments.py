"""Virtual environments of jobs, cached by the content of their requirements.

    environment = ensure(Path("requirements.txt"), root=cache, say=print)

Each environment is a directory, named by a hash of the requirements, the Python version and the
platform. It is built in place, because its scripts have absolute paths, under a lock, and is
complete when it has the file `hekla-complete`. pip inherits the lock: if hekla is killed, the next
run waits until pip has ended, and builds again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from hekla.sdk import requirements_file
from hekla.sdk.host_paths import HostPathError
from hekla.sdk.requirements_file import Requirements

DIRECTORY: Final = "environments"
COMPLETE: Final = "hekla-complete"
LOCK_SUFFIX: Final = ".lock"
KEY_CHARS: Final = 16
SHOWN_LINES: Final = 15
MAX_LINE: Final = 2_000
BUILD_UMASK: Final = 0o022

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment in the cache."""

    key: str
    path: Path
    is_complete: bool
    last_used: float
    """Unix seconds."""

    def variables(self, search_path: str) -> dict[str, str]:
        """Return the variables that make it the environment of a command."""
        return {"VIRTUAL_ENV": str(self.path), "PATH": f"{self.path / 'bin'}:{search_path}"}


def ensure(requirements: Path, *, root: Path, say: Say) -> Environment:
    """Return the environment of a requirements file; build it if it does not exist.

    Raise HostPathError with the last lines of pip if it cannot be built.
    """
    wanted = requirements_file.read(requirements)
    key = key_of(wanted)
    place = _directory(root)
    path = place / key
    with _locked(place / f"{key}{LOCK_SUFFIX}", say, f"environment {key}") as lock:
        if not (path / COMPLETE).exists():
            shutil.rmtree(path, ignore_errors=True)
            try:
                _build(path, wanted, requirements, lock, say)
            except BaseException:
                shutil.rmtree(path, ignore_errors=True)
                raise
            (path / COMPLETE).write_text(f"{requirements.absolute()}\n")
        os.utime(path / COMPLETE)
        return _environment(path)


def key_of(requirements: Requirements) -> str:
    """Return the name of an environment: a hash of everything that decides its content."""
    parts = (
        requirements.text(),
        requirements.constraints_text(),
        f"{sys.implementation.name} {platform.python_version()}",
        sysconfig.get_platform(),
        _interpreter(),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:KEY_CHARS]


def list_environments(root: Path) -> list[Environment]:
    """Return the environments in a cache directory, the longest unused first."""
    place = root / DIRECTORY
    found = [_environment(each) for each in place.glob("*") if each.is_dir()]
    return sorted(found, key=lambda each: each.last_used)


def remove_environment(environment: Environment) -> bool:
    """Remove an environment; return False if a run builds or checks it at this moment.

    Jobs that use it fail: see the annotation `hekla.io/environment` of unfinished pods.
    """
    lock_path = environment.path.with_name(f"{environment.key}{LOCK_SUFFIX}")
    with lock_path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        # Incomplete first: a removal that is interrupted leaves nothing that is used.
        (environment.path / COMPLETE).unlink(missing_ok=True)
        shutil.rmtree(environment.path, ignore_errors=True)
    return True


def _environment(path: Path) -> Environment:
    marker = path / COMPLETE
    is_complete = marker.exists()
    used = (marker if is_complete else path).stat().st_mtime
    return Environment(path.name, path, is_complete, used)


def _directory(root: Path) -> Path:
    place = root / DIRECTORY
    place.mkdir(exist_ok=True)
    place.chmod(0o755)  # whatever the umask: pods of other users read it
    return place


@contextmanager
def _locked(path: Path, say: Say, what: str) -> Iterator[IO[str]]:
    """Hold a lock. Its file stays: another run that waits for it has it open."""
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{what} is being built by another run: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def _interpreter() -> str:
    """Return the Python of an environment: the one that runs hekla, without its own environment."""
    return str(getattr(sys, "_base_executable", "") or sys.executable)


def _build(path: Path, requirements: Requirements, source: Path, lock: IO[str], say: Say) -> None:
    uv = shutil.which("uv")
    tool = "uv" if uv else "pip"
    say(f"building environment {path.name} of {source} with {tool}; it is used again next time")
    make = [uv, "venv", "--quiet", "--python", _interpreter(), str(path)] if uv else None
    _call(make or [_interpreter(), "-m", "venv", str(path)], source, lock, say)
    files = _write_requirements(path, requirements)
    python = str(path / "bin" / "python")
    if uv:
        install = [uv, "pip", "install", "--python", python, *files]
    else:
        quiet = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
        install = [python, "-m", "pip", "install", *quiet, *files]
    if requirements.lines:
        _call(install, source, lock, say)


def _write_requirements(path: Path, requirements: Requirements) -> list[str]:
    """Write what is installed: the files of the user may change meanwhile."""
    file, constraints = path / "requirements.txt", path / "constraints.txt"
    file.write_text(requirements.text())
    if not requirements.constraints:
        return ["-r", str(file)]
    constraints.write_text(requirements.constraints_text())
    return ["-r", str(file), "-c", str(constraints)]


def _call(line: list[str], source: Path, lock: IO[str], say: Say) -> None:
    """Run a command that inherits the lock; show what it does, raise an error with its end."""
    environ = {key: text for key, text in os.environ.items() if key != "VIRTUAL_ENV"}
    last: deque[str] = deque(maxlen=SHOWN_LINES)
    with subprocess.Popen(
        line,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=[lock.fileno()],
        umask=BUILD_UMASK,
        env=environ,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            while text := process.stdout.readline(MAX_LINE):
                last.append(text.rstrip())
                if text.startswith(("Collecting", "Downloading", "Building", "Installing")):
                    say(f"  {text.rstrip()}")
        except BaseException:  # Ctrl-C too: no pip stays behind
            process.terminate()
            raise
    if process.returncode != 0:
        shown = "".join(f"\n  {text}" for text in last if text)
        raise HostPathError(
            f"the environment of {source} cannot be built: {Path(line[0]).name} exited with code "
            f"{process.returncode}{shown}\ncorrect {source}, or check the network and pip's "
            "configuration; then run the same command again"
        )
