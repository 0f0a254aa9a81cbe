"""Escape sequences in what tenants write are shown by the commands, not sent to the terminal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import hekla.cli
from hekla.cli import terminal
from hekla.cli.vcctl import explain, job_view, output

NASTY = "\x1b]0;title\x07\x1b[2J\x9b31m\r\x08\u202e"


def printed(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    terminal.echo(text)
    return capsys.readouterr().out


def test_control_characters_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(f"a{NASTY}b\tc\nd", capsys)
    assert shown.startswith("a\\u001b]0;title\\u0007\\u001b[2J\\u009b31m\\u000d\\u0008\\u202eb")
    assert shown.endswith("b\tc\nd\n")


def test_colours_of_our_own_stay_and_those_of_tenants_do_not(monkeypatch: Any) -> None:
    written: list[str] = []
    monkeypatch.setattr("click.echo", lambda text, **options: written.append(text))
    terminal.echo(terminal.style("\x1b[31mRunning", fg="green") + " \x1b[8mhidden")
    assert written == ["\x1b[32m\\u001b[31mRunning\x1b[0m \\u001b[8mhidden"]


def job() -> dict[str, Any]:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {
            "name": "j",
            "namespace": "n",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"note": NASTY},
            "labels": {},
        },
        "spec": {"queue": NASTY, "tasks": [{"name": NASTY, "replicas": 1}], "minAvailable": 1},
        "status": {"state": {"phase": "Pending", "message": NASTY, "reason": NASTY}},
    }


def event() -> dict[str, Any]:
    return {
        "metadata": {"name": "e", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "type": "Warning",
        "reason": NASTY,
        "message": NASTY,
        "source": {"component": NASTY},
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }


def test_view_and_explanation_of_a_job_show_them(capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(job_view.report(job(), [event()]), capsys)
    shown += printed("\n".join(explain.explanation(job(), None, None, [], [event()])), capsys)
    assert "\\u001b" in shown
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", shown)


def test_json_and_yaml_stay_faithful() -> None:
    assert output.as_yaml({"a": NASTY}).isprintable() is False or NASTY not in output.as_yaml(
        {"a": NASTY}
    )


def test_only_output_for_programs_and_logs_is_printed_raw() -> None:
    raw = {
        "completion.py": 1,  # a script for the shell
        "history.py": 2,  # -o json, yaml, csv
        "install.py": 1,  # manifests
        "job_runtime.py": 1,  # logs of pods, as kubectl prints them
        "list_watch.py": 1,  # -o json, yaml
        "nodes.py": 3,  # -o json, yaml, name
        "output.py": 1,  # -o json, yaml, jsonpath
        "progress.py": 1,  # logs of pods
        "service.py": 1,  # a unit of systemd
        "submission.py": 1,  # --dry-run -o yaml
        "terminal.py": 1,
        "top.py": 1,  # -o json
        "usage.py": 2,  # -o json, csv
        "verbs.py": 1,  # -o json, yaml
    }
    found: dict[str, int] = {}
    for path in Path(hekla.cli.__file__).parent.rglob("*.py"):
        if count := len(re.findall(r"\bclick\.s?echo\b", path.read_text())):
            found[path.name] = count
    assert found == raw
