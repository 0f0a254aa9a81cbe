"""Draw docs/images/session.svg, the terminal in the README: `python -m tools.terminal_session`.

The commands run on a cluster that is started for this, on a pseudo-terminal, and their output is
drawn.
"""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

REPOSITORY = Path(__file__).parents[1]
EXAMPLES = REPOSITORY / "examples" / "share-one-box"
TARGET = REPOSITORY / "docs" / "images" / "session.svg"
WIDTH = 100

# Before the recording: two queues, and a sweep that uses all eight GPUs.
BEFORE = (
    "hekla run scheduler.yaml queues.yaml",
    "vcctl job run -f sweep.yaml",
    "vcctl job wait sweep --for started",
)
SHOWN = (
    "vcctl job submit train --image host --replicas 10 --gpu 1 --queue bob -- python train.py",
    "hekla explain train",
    "vcctl job run -f evaluation.yaml",
    "vcctl job wait evaluation --for started",
    "vcctl queue top -r nvidia.com/gpu",
)

# As rich draws it, but with local fonts: the picture loads nothing.
FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: arial; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def run(line: str, environment: dict[str, str]) -> str:
    """Return the output of a command on a terminal."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        shlex.split(line),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        cwd=EXAMPLES,
        env=environment,
    )
    os.close(theirs)
    printed = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # EIO: the command has ended
            break
        if not piece:
            break
        printed += piece
    os.close(ours)
    if child.wait() != 0:
        raise SystemExit(f"{line}: ended with {child.returncode}\n{printed.decode()}")
    return printed.decode().replace("\r\n", "\n").rstrip()


def record(environment: dict[str, str], data_dir: str) -> str:
    run(
        f"hekla up --detach --pod-network host --simulated-gpus 8 --data-dir {data_dir}",
        environment,
    )
    try:
        for line in BEFORE:
            run(line.replace("hekla run", f"hekla run --data-dir {data_dir}"), environment)
        with Path(os.devnull).open("w") as nowhere:
            console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
            for line in SHOWN:
                console.print(Text.assemble(("$ ", "bold green"), (line, "bold")))
                console.print(Text.from_ansi(run(line, environment)), soft_wrap=False)
                console.print()
            return console.export_svg(title="hekla", code_format=FORMAT)
    finally:
        run(f"hekla down --data-dir {data_dir}", environment)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="hekla-session-") as data_dir:
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "KUBECONFIG": f"{data_dir}/kubeconfig",
            "COLUMNS": str(WIDTH),
            "TERM": "xterm-256color",
        }
        TARGET.parent.mkdir(exist_ok=True)
        TARGET.write_text(record(environment, data_dir))
    print(TARGET)


if __name__ == "__main__":
    main()
