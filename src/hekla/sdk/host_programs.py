"""The program of a command that runs on this machine: whether pods find the one that its user does.

Pods that run as users of their namespace see no private directories. A program in one of them, such
as the Python of a virtual environment in /root, is not there for them.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hekla.sdk.host_paths import HostPathError, program_refusal

_INTERPRETERS: Final = {".py": "python3", ".sh": "sh", ".R": "Rscript", ".pl": "perl"}


@dataclass(frozen=True)
class HostProgram:
    """The first word of a command, and where it is searched: `PATH`, and the working directory."""

    name: str
    path: str
    workdir: Path

    def check(self, *, for_others: bool, say: Callable[[str], None]) -> None:
        """Raise HostPathError if pods cannot run it; say so if they run another one of its name."""
        found = [each for each in self._places() if each.is_file() and os.access(each, os.X_OK)]
        if not found:
            raise HostPathError(self._missing())
        if not for_others:
            return
        refusals = [program_refusal(each) for each in found]
        if not refusals[0]:
            return
        refused = f"pods cannot run {found[0]}: {refusals[0]}"
        usable = next((each for each, why in zip(found, refusals, strict=True) if not why), None)
        if usable is None:
            raise HostPathError(refused + self._other_python())
        say(f"{refused}{self._other_python()}; they run {usable}")

    def _places(self) -> Iterator[Path]:
        if "/" in self.name:
            yield self.workdir / self.name
            return
        for directory in self.path.split(os.pathsep):
            yield self.workdir / directory / self.name

    def _missing(self) -> str:
        here = self.workdir / self.name
        interpreter = _INTERPRETERS.get(here.suffix)
        by_interpreter = f"{interpreter} {shlex.quote(self.name)}" if interpreter else ""
        if "/" in self.name:
            if here.is_dir():
                return f"the program {self.name} is a directory; name a file in it"
            if not here.exists():
                return f"the program {self.name} does not exist in {self.workdir}; correct the path"
            steps = f"chmod +x {shlex.quote(str(here))}", by_interpreter
            return f"{self.name} is not executable: {', or run '.join(filter(None, steps))}"
        missing = f"no program {self.name!r} is on the PATH"
        if len(self.name.split()) > 1:
            return f"{missing}; write its words without quotes, or sh -c {shlex.quote(self.name)}"
        if here.is_file():
            return f"{missing}; the file here is {by_interpreter or f'./{self.name}'}"
        for other in (f"{self.name}3", self.name.removesuffix("3")):
            there = HostProgram(other, self.path, self.workdir)
            if other != self.name and any(os.access(each, os.X_OK) for each in there._places()):
                return f"{missing}; there is {other}"
        return f"{missing}; correct it, or write the program's path"

    def _other_python(self) -> str:
        """Return that pods can use an environment of --requirements, if that helps."""
        base = Path(sys.base_prefix) / "bin" / "python3"
        if not self.name.startswith("python") or not base.exists() or program_refusal(base):
            return ""
        return "; --requirements FILE makes an environment that they can use"
