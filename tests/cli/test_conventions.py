"""Conventions of all commands: exit codes, flag syntax, streams, colour, help, completion."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from hekla.cli.vcctl import main, shortcuts
from hekla.cli.vcctl.commands import VcctlCommand, parse_go_flags
from hekla.cli.vcctl.errors import did_you_mean
from hekla.cli.vcctl.options import job_target
from hekla.kube.data_dir import LOCK_FILE, PID_FILE
from tests.cli.conftest import Run

Make = Callable[..., dict[str, Any]]


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every leaf command with its words."""
    context = click.Context(main.vcctl)
    for name in main.vcctl.list_commands(context):
        found = main.vcctl.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            for leaf in found.list_commands(context):
                command = found.get_command(context, leaf)
                assert command is not None
                yield f"vcctl {name} {leaf}", command
        else:
            yield f"vcctl {name}", found
    for name in main.SHORTCUTS:
        yield name, getattr(shortcuts, name)


def test_group_without_command_shows_help_and_exits_0(call: Run) -> None:
    for args in ((), ("job",), ("queue",)):
        done = call("vcctl", *args)
        assert done.code == 0
        assert done.out.startswith("Usage: vcctl")


def test_help_is_also_a_command(call: Run) -> None:
    assert call("vcctl", "help").out == call("vcctl").out
    assert call("vcctl", "help", "job", "list").out.startswith("Usage: vcctl job list")


@pytest.mark.parametrize(
    ("args", "want"),
    [
        (("jbo", "list"), '"jbo" for "vcctl"; did you mean "job"?\n  see `vcctl --help`\n'),
        (("job", "lsit"), '"lsit" for "vcctl job"; did you mean "list" or "submit"?\n'),
        (("jobflow", "apply"), '"apply" for "vcctl jobflow"\n  see `vcctl jobflow --help`\n'),
    ],
)
def test_unknown_command_exits_1_with_a_message_on_stderr(
    call: Run, args: tuple[str, ...], want: str
) -> None:
    done = call("vcctl", *args)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"Error: unknown command {want}")


def test_invalid_flag_exits_1_with_a_message_on_stderr(call: Run) -> None:
    for args in (("job", "list", "--nope"), ("queue", "create", "-w", "many")):
        done = call("vcctl", *args)
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith("Error: ")
        assert "--help`" in done.err


def test_words_that_a_command_does_not_take_are_refused(vcctl: Run, tool: Run) -> None:
    for args in (("job", "list", "a"), ("job", "view", "a", "b"), ("queue", "get", "a", "b")):
        done = vcctl(*args)
        assert (done.code, done.out) == (1, "")
        assert "unexpected extra argument" in done.err
    assert tool("vcancel", "-n", "a", "b").code == 1


def test_flags_accept_go_syntax(vcctl: Run, namespace: str) -> None:
    for args in (
        ("--all_namespaces=false", f"-n={namespace}"),
        ("--all-namespaces=0", "-v", "4", "--log-flush-frequency=5s"),
    ):
        assert vcctl("job", "list", *args).out == "No resources found\n"


def test_go_syntax_keeps_values_and_words_after_two_dashes() -> None:
    command = click.Command(
        "x", params=[click.Option(["-n", "--name"]), click.Option(["-w"], is_flag=True)]
    )
    assert parse_go_flags(command, ["-n=a", "-n", "-w=true", "-w=true", "--", "-n=b"]) == [
        *("-n", "a", "-n", "-w=true", "-w", "--", "-n=b")
    ]


def test_missing_cluster_is_an_error_with_a_hint(
    call: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    done = call("vcctl", "job", "list")
    assert done.code == 255
    assert "start one here with `hekla up`" in done.err
    assert "Traceback" not in done.err
    done = call("vcctl", "job", "list", "-s", "http://127.0.0.1:9")
    assert done.code == 255
    assert "is the cluster up?" in done.err


def test_cluster_of_hekla_up_is_found_without_kubeconfig(
    call: Run, server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    own = tmp_path / "hekla"
    own.mkdir()
    (own / "kubeconfig").write_text(server.read_text())
    (own / PID_FILE).write_text(str(os.getpid()))
    with (own / LOCK_FILE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as while it runs
        assert call("vcctl", "queue", "get", "default", "-o", "name").code == 0
        assert call("vcctl", "queue", "get", "default", "--data-dir", str(own)).code == 0
    done = call("vcctl", "queue", "get", "default")
    assert done.code == 255
    assert "is down; start it with `hekla up -d`" in done.err


def test_debug_prints_a_traceback(vcctl: Run) -> None:
    assert "Traceback" not in vcctl("job", "view", "gone").err
    assert "Traceback" in vcctl("job", "view", "gone", "--debug").err


def test_internal_error_is_reported_without_a_traceback(
    vcctl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hekla.cli.vcctl import jobs

    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(jobs, "list_jobs", broken)
    done = vcctl("job", "list")
    assert done.code == 255
    assert "vcctl has a bug: ZeroDivisionError: oops" in done.err
    assert "Traceback" not in done.err


def test_unknown_context_error_lists_known_contexts(vcctl: Run) -> None:
    done = vcctl("job", "list", "--context", "nope")
    assert done.code == 255
    assert "no context 'nope'; there are: " in done.err


def test_failures_stay_off_stdout(vcctl: Run) -> None:
    assert vcctl("job", "explain", "gone").out == ""
    assert vcctl("job", "view", "gone", "-o", "json").out == ""


def _on_a_terminal(config: Path, **env: str) -> str:
    """Return what `vcctl queue list` writes to a terminal."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "hekla.cli.vcctl.main", "queue", "get", "default"],
        stdout=theirs,
        env={**os.environ, "KUBECONFIG": str(config), "TERM": "xterm", **env},
    )
    process.wait(120)
    os.close(theirs)
    written = os.read(ours, 65536).decode()
    os.close(ours)
    return written


def test_colour_is_for_terminals_only_and_not_with_no_color(
    vcctl: Run, make_job: Make, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    make_job("train", phase="Running")
    assert "\x1b[" not in vcctl("job", "list").out
    assert "\x1b[32mOpen\x1b[0m" in _on_a_terminal(config)
    assert "\x1b[" not in _on_a_terminal(config, NO_COLOR="1")


def test_invalid_name_is_rejected(vcctl: Run) -> None:
    for name in ("a/b", "..", "../secrets/x"):
        done = vcctl("job", "view", name)
        assert done.code == 255
        assert "cannot be a name" in done.err
        assert "has a fault" not in done.err


@pytest.mark.parametrize(
    ("path", "command"), list(commands()), ids=[path for path, _ in commands()]
)
def test_every_command_has_help_with_an_example(path: str, command: click.Command) -> None:
    assert isinstance(command, VcctlCommand)
    assert command.get_short_help_str()
    assert command.examples, f"{path} shows no example"
    for param in command.params:
        if isinstance(param, click.Option) and not param.hidden:
            assert param.help, f"{path}: {param.opts} has no help"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed_for_each_shell(call: Run, shell: str) -> None:
    done = call("vcctl", "completion", shell)
    assert done.code == 0
    assert f"_VCCTL_COMPLETE={shell}_complete" in done.out


def test_names_are_completed_from_the_cluster(
    make_job: Make, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.shell_completion import ShellComplete

    make_job("training")
    make_job("other")
    completer = ShellComplete(main.vcctl, {}, "vcctl", "_VCCTL_COMPLETE")

    def complete(args: list[str], incomplete: str) -> list[str]:
        return [item.value for item in completer.get_completions(args, incomplete)]

    assert complete(["job", "view", "-N"], "tr") == ["training"]
    assert complete(["job", "view"], "") == ["other", "training"]
    assert "default" in complete(["queue", "get", "-n"], "def")
    assert complete(["job", "list", "-o"], "js") == ["json", "jsonpath="]
    assert "job" in complete([], "jo")
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    assert complete(["job", "view"], "") == []


@pytest.mark.parametrize(
    ("given", "want"),
    {
        "a lone -n is the name": ((None, "", "x", ""), ("x", None)),
        "-N makes -n the namespace": ((None, "x", "ml", ""), ("x", "ml")),
        "a word makes -n the namespace": (("x", "", "ml", ""), ("x", "ml")),
        "--namespace is never a name": ((None, "", "", "ml"), ("", "ml")),
        "-n with --namespace": ((None, "", "x", "ml"), ("x", "ml")),
        "the same name twice": (("x", "x", "", ""), ("x", None)),
        "nothing": ((None, "", "", ""), ("", None)),
    }.values(),
)
def test_target_of_name_and_namespace_flags(
    given: tuple[Any, ...], want: tuple[str, str | None]
) -> None:
    target = job_target(*given)
    assert (target.name, target.namespace) == want


def test_did_you_mean_prefers_near_names_and_then_beginnings() -> None:
    assert did_you_mean("trian", ["train", "other"]) == 'did you mean "train"?'
    assert did_you_mean("t", ["training-of-the-model"]) == 'did you mean "training-of-the-model"?'
    assert did_you_mean("zzz", ["train"]) == ""


def test_vcctl_starts_without_expensive_imports() -> None:
    script = (
        "import sys; from hekla.cli.vcctl import main, jobs, queues, flows, pods; "
        "heavy = {'numpy', 'aiohttp', 'asyncio', 'uvicorn', 'cryptography', 'jsonschema_rs', "
        "'hekla.scheduler', 'hekla.apiserver'} & set(sys.modules); print(sorted(heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_importing_hekla_imports_no_submodule() -> None:
    script = (
        "import sys, hekla; print([m for m in sys.modules if m.startswith('hekla.')]); "
        "from hekla import Job, Queue, submit; print(Job.__name__, Queue.__name__, submit.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[]", "Job Queue submit"]


def test_vcctl_commands_are_available_under_hekla_on_demand(config: Path, make_job: Make) -> None:
    from click.testing import CliRunner

    from hekla.cli.main import main as hekla

    make_job("train")
    runner = CliRunner()
    assert runner.invoke(hekla, ["job", "list"]).output.splitlines()[1].startswith("train ")
    told = runner.invoke(hekla, ["explain", "train"])
    assert told.exit_code == 0
    assert "no controller has handled it" in told.output
    missing = runner.invoke(hekla, ["explain", "trian"])
    assert missing.exit_code == 255
    assert 'did you mean "train"?' in missing.output
    script = "import sys, hekla.cli.main; print('hekla.kube.sync_client' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_failures_and_hints_name_the_program_that_runs(tool: Run, config: Path) -> None:
    for words, want in (
        (("hekla", "job", "view", "x"), "Failed to view job: "),
        (("hekla", "history", "-q", "x", "--url", "http://x"), "Failed to read the history: "),
        (("hekla", "usage", "--url", "http://x"), "Failed to read the usage: "),
        (("hekla", "job", "wait", "x"), "Failed to wait for job: "),
        (("vsub",), "Failed to run job: "),
        (("vqueues", "-n", "x"), "Failed to list queues: "),
    ):
        done = tool(*words)
        assert done.code == 255, done
        assert done.err.startswith(want)
    for program in ("hekla", "vcctl"):
        assert f"`{program} job list -n " in tool(program, "job", "view", "x").err
        assert f"`{program} job list -n " in tool(program, "job", "delete", "x", "y").err
        assert f"  {program} job list -A" in tool(program, "job", "list", "--help").out
