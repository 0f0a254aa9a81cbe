"""Requirements files as pip reads them: normalised, with their includes, for a stable hash."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hekla.sdk.host_paths import HostPathError

MAX_BYTES: Final = 1 << 20
MAX_FILES: Final = 20
_COMMENT: Final = re.compile(r"(^|\s)#.*$")
_INCLUDE: Final = re.compile(r"(-r|--requirement|-c|--constraint)(?:\s*=?\s*)(\S.*)")
_EDITABLE: Final = re.compile(r"(-e|--editable)\b")
_LOCAL: Final = re.compile(r"\.{0,2}/|file:|\S+\s*@\s*file:|[\w./-]+\.(whl|tar\.gz|zip)$")
_LINKS: Final = re.compile(r"(?:-f|--find-links)(?:\s*=?\s*)(\S.*)")


@dataclass
class Requirements:
    """The lines of a requirements file, without comments, with the lines of its includes."""

    lines: list[str] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)

    def constraints_text(self) -> str:
        return "".join(f"{line}\n" for line in self.constraints)


def read(path: Path) -> Requirements:
    """Read a requirements file; raise HostPathError for what cannot be cached."""
    found = Requirements()
    _read(path, found, found.lines, [])
    return found


def _read(path: Path, found: Requirements, into: list[str], seen: list[Path]) -> None:
    if path.resolve() in seen:
        return  # as pip: a file that includes itself is read once
    if len(seen) >= MAX_FILES:
        raise HostPathError(f"{path}: more than {MAX_FILES} files are included; write fewer")
    seen.append(path.resolve())
    for line in _logical_lines(path):
        if match := _INCLUDE.fullmatch(line):
            other = found.constraints if match[1] in ("-c", "--constraint") else into
            _read(path.parent / match[2], found, other, seen)
            continue
        _check(path, line)
        into.append(line)


def _logical_lines(path: Path) -> Iterator[str]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        text = data.decode()
    except OSError as error:
        raise HostPathError(
            f"the requirements {path} cannot be read: {error.strerror}; correct the path"
        ) from error
    except UnicodeDecodeError as error:
        raise HostPathError(f"the requirements {path} are not UTF-8 text") from error
    if len(data) > MAX_BYTES:
        raise HostPathError(f"the requirements {path} are larger than {MAX_BYTES >> 20} MiB")
    for line in text.replace("\\\n", " ").splitlines():
        line = " ".join(_COMMENT.sub("", line).split())
        if line:
            yield line


def _check(path: Path, line: str) -> None:
    """Refuse what changes without a change of the file."""
    links = _LINKS.fullmatch(line)
    if links is not None and ":" not in links[1] and not links[1].startswith("/"):
        raise HostPathError(f"{path}: {line!r} is a relative path; write an absolute one")
    if links is None and (_EDITABLE.match(line) or _LOCAL.match(line)):
        raise HostPathError(
            f"{path}: {line!r} is a local path, whose content may change while the environment is "
            "cached; leave it out and run the code in place (PYTHONPATH), or with --sync"
        )
