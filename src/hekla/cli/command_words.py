"""What people type after `hekla run`: a command without `--`, or input that it would not get."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import stat
import struct
import termios
from collections.abc import Sequence, Set
from pathlib import Path

_PROGRAMS = {".py": "python", ".sh": "bash"}


def meant(args: Sequence[str], with_value: Set[str]) -> str:
    """Return the command line that was meant if `--` is missing; empty if it is not.

    A script, or a program that is no file here, starts the command; flags before it are kept.
    `with_value` are the flags that have a value.
    """
    index = 0
    while index < len(args) and args[index].startswith("-"):
        index += 2 if args[index] in with_value else 1
    if index >= len(args):
        return ""
    word = args[index]
    command = list(args[index:])
    if program := _PROGRAMS.get(Path(word).suffix):
        command.insert(0, program)
    elif Path(word).exists() or not shutil.which(word):
        return ""
    return shlex.join(["hekla", "run", *args[:index], "--", *command])


def unread_input(number: int) -> str:
    """Return that data of a pipe or file is not read; empty if there is none."""
    try:
        status = os.fstat(number)
        if stat.S_ISFIFO(status.st_mode):
            answer = fcntl.ioctl(number, termios.FIONREAD, struct.pack("i", 0))
            has_data = struct.unpack("i", answer)[0] > 0
        else:
            has_data = stat.S_ISREG(status.st_mode) and status.st_size > 0
    except OSError:
        return ""
    if not has_data:
        return ""
    return "the command does not get the standard input of `hekla run`; pass a file with --input"
