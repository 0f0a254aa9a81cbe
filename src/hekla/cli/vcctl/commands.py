"""click commands with the conventions of Volcano's tools.

- Flags may be written with underscores; `-n=x` and `--watch=true` work, as in Go.
- A wrong command line exits with 1. A failed command exits with 255 and prints `Failed to view job:
  …`.
- A group without a command prints its help and exits with 0.
- Words that a command does not take are an error. Volcano ignores them: `vcctl job delete a b`
  deletes only `a` there.

Note: Volcano prints the failure line on stdout, and exits with 0 after an unknown command of a
group. Here stdout has results only, and every failure has an exit code.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from hekla.cli import terminal
from hekla.cli.vcctl.errors import FAILURE, USAGE, CommandFailed, did_you_mean, failure_of
from hekla.kube.errors import KubeError

SETTINGS: dict[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "token_normalize_func": lambda text: text.replace("_", "-"),
    "max_content_width": 100,
}


VCCTL = "vcctl"
SHORTCUTS = frozenset({"vsub", "vjobs", "vqueues", "vcancel", "vsuspend", "vresume"})
"""Programs without the other verbs."""


class VcctlCommand(click.Command):
    """A command without subcommands."""

    def __init__(
        self, *args: Any, examples: Sequence[str] = (), verb: str = "", **kwargs: Any
    ) -> None:
        """`verb` is what failed, if that is not in the command's words: `list nodes`."""
        kwargs["context_settings"] = {**SETTINGS, **kwargs.pop("context_settings", {})}
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        self._verb = verb

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, parse_go_flags(self, args))
        except CommandFailed as error:  # a callback refused the value of a flag
            self._fail(ctx, error)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (KubeError, CommandFailed) as error:
            self._fail(ctx, error)

    def _fail(self, ctx: click.Context, error: KubeError | CommandFailed) -> NoReturn:
        if ctx.params.get("debug") or os.environ.get("HEKLA_DEBUG"):
            traceback.print_exc()
        failure = failure_of(error) if isinstance(error, KubeError) else error
        words = f" {self._verb}" if self._verb else _command_words(ctx)
        report_failure(f"Failed to{words}: {failure.message}", failure.hint)
        ctx.exit(failure.code)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"  {_for_program(example)}\n")
        super().format_epilog(ctx, formatter)


class VcctlGroup(click.Group):
    """A group such as `vcctl job`.

    `lazy` names commands of other modules as `module:attribute` below this package. They are
    imported on demand, so that `vcctl job list` does not import `vcctl job submit`.
    """

    command_class = VcctlCommand

    def __init__(self, *args: Any, lazy: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        kwargs["context_settings"] = {**SETTINGS, **kwargs.get("context_settings", {})}
        super().__init__(*args, **kwargs)
        self._lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands and cmd_name in self._lazy:
            module, attribute = self._lazy[cmd_name].split(":")
            command: click.Command = getattr(import_module(f"hekla.cli.vcctl.{module}"), attribute)
            self.add_command(command, cmd_name)
        return super().get_command(ctx, cmd_name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            terminal.echo(ctx.get_help())
            ctx.exit(0)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        known = ctx.resilient_parsing or self.get_command(ctx, name) is not None
        if not known and not name.startswith("-"):
            self.unknown(ctx, name)
        return super().resolve_command(ctx, args)

    def unknown(self, ctx: click.Context, name: str) -> NoReturn:
        near = did_you_mean(name, self.list_commands(ctx))
        description = f'unknown command "{name}" for "{ctx.command_path}"'
        raise click.UsageError(f"{description}; {near}" if near else description, ctx)


def report_failure(line: str, hint: str = "") -> None:
    """Print a failure, and the next step on a line of its own.

    Hints are written for vcctl; the other programs have the same commands.
    """
    terminal.echo(line, err=True)
    if hint:
        terminal.echo(f"  {hint.replace(f'{VCCTL} ', f'{program()} ')}", err=True)


def _command_words(ctx: click.Context) -> str:
    """Return ` view job` for `vcctl job view`: from the command up to the group, without the
    program.
    """
    words = []
    level: click.Context | None = ctx
    while level is not None and level.parent is not None:
        words.append(level.info_name or "")
        level = level.parent
    return "".join(f" {word}" for word in words)


def parse_go_flags(command: click.Command, args: Sequence[str]) -> list[str]:
    """Rewrite arguments in the syntax of Go's flag package for click."""
    flags: set[str] = set()
    valued: set[str] = set()
    for param in command.params:
        if isinstance(param, click.Option):
            (flags if param.is_flag else valued).update(param.opts)
    rewritten: list[str] = []
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*rewritten, word, *rest]
        name, equals, value = word.partition("=")
        name = name[:2] + name[2:].replace("_", "-") if name.startswith("--") else name
        if equals and len(name) == 2 and name in valued:
            rewritten += [name, value]
        elif equals and name in flags and value.lower() in ("true", "1", "t", "false", "0", "f"):
            rewritten += [name] if value.lower()[0] in "t1" else []
        else:
            rewritten.append(word)
            if word in valued and rest:
                rewritten.append(rest.pop(0))  # a value may look like a flag
    return rewritten


def run(command: click.Command, program: str, args: Sequence[str] | None = None) -> int:
    """Run a command line, print every failure as a sentence, and return the exit code."""
    words = sys.argv[1:] if args is None else list(args)
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    try:
        code = command.main(words, program, standalone_mode=False, color=False if plain else None)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.UsageError as error:
        terminal.echo(f"Error: {error.format_message()}", err=True)
        if error.ctx is not None:
            terminal.echo(f"  see `{error.ctx.command_path} --help`", err=True)
        return USAGE
    except click.ClickException as error:
        terminal.echo(f"Error: {error.format_message()}", err=True)
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        # The reader closed the pipe; prevent an error of Python at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if "--debug" in words or os.environ.get("HEKLA_DEBUG"):
            traceback.print_exc()
        else:
            description = f"{type(error).__name__}: {error}".rstrip(": ")
            terminal.echo(f"Error: {program} has a bug: {description}", err=True)
            terminal.echo("  run it with --debug and report the output", err=True)
        return FAILURE


def program() -> str:
    """Return the program that runs, for hints: `hekla`, `vcctl`, `kubectl vc`."""
    ctx = click.get_current_context(silent=True)
    name = (ctx.find_root().info_name if ctx is not None else None) or VCCTL
    if name in SHORTCUTS:
        return VCCTL
    return name if name.startswith((VCCTL, "kubectl ")) else "hekla"


def _for_program(example: str) -> str:
    words = example.split(" ", 1)
    return f"{program()} {words[1]}" if words[0] == VCCTL and len(words) > 1 else example


def note(text: str) -> None:
    """Print a confirmation to a terminal; Volcano prints nothing, so scripts get nothing."""
    if sys.stderr.isatty():
        terminal.echo(text, err=True)


def warn(text: str) -> None:
    """Print a warning about input that is valid and probably not intended."""
    terminal.echo(f"Warning: {text}", err=True)


Callback = Callable[..., Any]
