"""What a person sees: commands and their output as a transcript, compared with a recorded one.

HEKLA_RECORD_SCREENS=1 records the transcripts again. Read the difference before you commit it: the
screens are what people get to read.
"""

from __future__ import annotations

import difflib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.waiting import until

SCREENS = Path(__file__).parent / "screens"
TIMEOUT_S = 120
# What differs between runs and machines, and what stands for it.
_VARYING: tuple[tuple[str, str], ...] = (
    (r"https://127\.0\.0\.1:\d+", "https://127.0.0.1:PORT"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "2026-01-31T12:00:00Z"),
    (r"\b\d{4}-\d\d-\d\d\b(?!T)", "2026-01-31"),
    (r"(?m)^  [0-9msh]+ ago", "  2s ago"),
    (r"(?m)\bsince [0-9msh]+$", "since 1s"),
    (r"\b\d\d:\d\d:\d\d\b(?!Z)", "00:00:01"),
    (r"\b\d+(\.\d+)? ?ms\b", "20 ms"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "5e0c8b52-7a43-4d0e-9f0e-2f1c6a7d3b10"),
    (r"\(([\w-]+)-\d+, \1-\d+, \1-\d+ and \d+ more\)", r"(\1-0, \1-1, \1-2 and 1 more)"),
    (r"\(process \d+\)", "(process 4711)"),
    (r"\bpid \d+\b", "pid 4711"),
)
_POD_LINE = re.compile(r"[a-z0-9.-]+ \| ")
_END = re.compile(r"job \S+: (Completed|Failed|Aborted|Terminated)$")


class Screen:
    """A terminal in a directory; `text` is what was typed and shown, without what varies."""

    def __init__(self, home: Path, environ: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.text = ""
        programs = Path(sys.executable).parent
        self.environ = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / ".local" / "state"),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "XDG_CACHE_HOME": str(home / ".cache"),
            "TZ": "UTC",
            **(environ or {}),
        }
        self._names: dict[str, str] = {}

    def write(self, name: str, text: str) -> Path:
        """Write a file, as with an editor; the transcript shows it."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self._show(f"$ cat {name}\n{text}")
        return path

    def note(self, text: str) -> None:
        """Say in the transcript what happens outside of the terminal."""
        self._show(f"# {text}\n")

    def run(self, command: str, *, code: int = 0, shown: bool = True) -> str:
        """Run a command line, and return its output."""
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.home,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == code, (command, done.returncode, done.stdout)
        if shown:
            self.show(command, done.stdout, code)
        return done.stdout

    def start(self, command: str) -> Running:
        """Start a command line that goes on while others run."""
        return Running(self, command)

    def show(self, command: str, output: str, code: int = 0) -> None:
        """Add a command and its output to the transcript."""
        self.type(command)
        self.add(output, code)

    def add(self, output: str, code: int = 0) -> None:
        """Add output to the transcript."""
        ended = f"(exit code {code})\n" if code else ""
        if output or ended:
            self._show(f"{in_order(output)}{ended}")

    def type(self, command: str) -> None:
        """Show a command line whose output follows later."""
        self._show(f"$ {command}")

    def name(self, real: str, shown: str) -> None:
        """Show a name that varies under another one."""
        self._names[real] = shown

    def _show(self, text: str) -> None:
        self.text += text if text.endswith("\n") else text + "\n"

    def transcript(self) -> str:
        """Return what was typed and shown."""
        # The home first: its random name may contain another one.
        text = self.text.replace(str(self.home), "/home/ada")
        for real, shown in sorted(self._names.items(), key=lambda pair: -len(pair[0])):
            text = re.sub(rf"(?<!\w){re.escape(real)}(?!\w)", shown, text)
        for pattern, shown in _VARYING:
            text = re.sub(pattern, shown, text)
        return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"

    def matches(self, name: str) -> None:
        """Compare the transcript with the recorded one."""
        path = SCREENS / f"{name}.txt"
        if os.environ.get("HEKLA_RECORD_SCREENS"):
            path.write_text(self.transcript())
        change = difflib.unified_diff(
            path.read_text().splitlines(), self.transcript().splitlines(), "recorded", "now"
        )
        text = "\n".join(change)
        assert not text, text


class Running:
    """A command that runs, and its output so far."""

    def __init__(self, screen: Screen, command: str) -> None:
        self._screen = screen
        self.command = command
        self._output = screen.home / f".output-{abs(hash(command))}"
        screen.type(f"{command} &")
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                ["sh", "-c", f"exec {command}"],
                cwd=screen.home,
                env=screen.environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        return self._output.read_text()

    def until(self, text: str) -> None:
        """Wait until the output contains a text."""
        until(lambda: text in self.output or self._process.poll() is not None)
        assert text in self.output, self.output

    def ends(self, *, code: int = 0) -> str:
        """Wait for the end, and add the command to the transcript."""
        assert self._process.wait(TIMEOUT_S) == code, self.output
        self._screen.note(f"the output of {self.command}")
        self._screen.add(self.output, code)
        return self.output

    def interrupt(self, *, code: int) -> str:
        """Press Ctrl-C."""
        self._process.send_signal(signal.SIGINT)
        return self.ends(code=code)


def in_order(output: str) -> str:
    """Return the output with the lines of pods, by pod, before the end of their job.

    The states and the lines of each pod are streams of their own, whose order is not defined.
    """
    lines = output.splitlines(keepends=True)
    pods = [line for line in lines if _POD_LINE.match(line)]
    others = [line for line in lines if not _POD_LINE.match(line)]
    end = next((at for at, line in enumerate(others) if _END.match(line)), None)
    if end is None or not pods:
        return output
    pods.sort(key=lambda line: line.partition(" | ")[0])
    return "".join([*others[:end], *pods, *others[end:]])
