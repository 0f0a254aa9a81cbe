"""Write docs/reference/cli.md from the commands themselves: `python tools/cli_reference.py`.

A test compares the file with what this would write, so a new flag cannot go undocumented.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from hekla.cli.vcctl import main, shortcuts
from hekla.cli.vcctl.commands import VcctlCommand

TARGET = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"

INTRODUCTION = """\
# The command line

<!-- Written by tools/cli_reference.py from the commands themselves. Do not edit. -->

`vcctl` and its one-purpose kin are Volcano's commands: names, flags, columns, messages and exit
codes are the same, and scripts written for Volcano's run unchanged. `kubectl vc …` and
`kubectl hekla …` are the same program as plugins of kubectl.

**Which cluster.** `--kubeconfig`, else `$KUBECONFIG`, else `~/.kube/config`, else the pod's own
service account, else the cluster that `hekla up` runs on this machine. The namespace is the
context's unless one is given.

**`-n` and `-N`.** For queues `-n` is the name. For the verbs on one job, `-N NAME -n NAMESPACE`
works as in Volcano; `-n` alone is the job's name, and so is a bare word. The one-purpose tools have
it the other way round: `-n` is the name and `-N` the namespace.

**Exit codes.** 0 done, 1 the command line is wrong (and, for `job wait` and `job submit --wait`,
the job failed), 124 time is up, 255 the command failed. A failure is told on stderr, with the next
step; Volcano's own commands repeat the first line on stdout when that is not a terminal, where
scripts expect it.

**Output.** `-o wide`, `json`, `yaml`, `name` or `jsonpath='{…}'` wherever objects are shown;
`--watch` stays and shows every change. Colour only on a terminal, and never with `$NO_COLOR` set.
`--debug` shows where a failure comes from. Every command that talks to a cluster takes these flags:

"""
COMMON = ("kubeconfig", "master", "context", "debug")


def leaves() -> Iterator[tuple[str, VcctlCommand]]:
    """Every command and the words that lead to it."""
    context = click.Context(main.vcctl)
    for name in main.vcctl.list_commands(context):
        found = main.vcctl.get_command(context, name)
        if isinstance(found, click.Group):
            for word in found.list_commands(context):
                yield f"vcctl {name} {word}", _leaf(found.get_command(context, word))
        else:
            yield f"vcctl {name}", _leaf(found)
    for name in main.SHORTCUTS:
        yield name, _leaf(getattr(shortcuts, name))


def _leaf(command: object) -> VcctlCommand:
    assert isinstance(command, VcctlCommand), command
    return command


def reference() -> str:
    parts = [INTRODUCTION, *_table(_common()), "\n"]
    group = ""
    for path, command in leaves():
        words = path.split()
        above = f"`{' '.join(words[:2])}`" if words[0] == "vcctl" else "One-purpose tools"
        if above != group:
            group = above
            parts.append(f"## {group}\n\n")
        parts += _section(path, command)
    return "".join(parts).rstrip("\n") + "\n"


def _common() -> list[click.Option]:
    return [option for option in _options(_leaf(shortcuts.vjobs)) if option.name in COMMON]


def _options(command: click.Command) -> list[click.Option]:
    return [p for p in command.params if isinstance(p, click.Option) and not p.hidden]


def _section(path: str, command: VcctlCommand) -> Iterator[str]:
    if len(path.split()) != 2 or not path.startswith("vcctl "):
        yield f"### `{path}`\n\n"
    words = " ".join(
        param.make_metavar(click.Context(command))
        for param in command.params
        if isinstance(param, click.Argument)
    )
    yield f"    {f'{path} [OPTIONS] {words}'.rstrip()}\n\n"
    yield f"{(command.help or '').strip()}\n\n"
    own = [option for option in _options(command) if option.name not in COMMON]
    if own:
        yield from _table(own)
        yield "\n"
    yield "Examples:\n\n"
    yield from (f"    {example}\n" for example in command.examples)
    yield "\n"


def _table(options: list[click.Option]) -> Iterator[str]:
    yield "| flag | meaning |\n|---|---|\n"
    for option in options:
        names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
        meaning = (option.help or "").replace("|", "\\|").replace("  [default", " [default")
        if option.show_default and option.default not in (None, "", False):
            meaning += f" [default: {option.default}]"
        if option.envvar:
            meaning += f" `${option.envvar}` gives the default."
        yield f"| {names} | {meaning} |\n"


if __name__ == "__main__":
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(reference())
    sys.stdout.write(f"wrote {TARGET}\n")
