"""`hekla config check` and `hekla config show`, and what `hekla status` reports of schedulers."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from hekla.api.scheduler_state import SCHEDULER_STATE_CONFIG_MAP, FailedPlugin, SchedulerState
from hekla.cli.main import main
from hekla.cli.vcctl.scheduler_config import problems
from hekla.kube.resources import CONFIGMAPS
from hekla.kube.sync_client import SyncClient

VALID = 'actions: "enqueue, allocate"\ntiers:\n- plugins:\n  - name: gang\n'
WRONG = 'tiers:\n- plugins:\n  - name: gangg\nactions: "enqueue"\n'
CONFIG_MAP = """\
kind: ConfigMap
data:
  volcano-scheduler.conf: |
    actions: "enqueue, allocat"
"""
FILES = {
    "valid": (VALID, 0, "is valid: actions enqueue, allocate; plugins gang"),
    "an unknown plugin": (WRONG, 255, "line 3: unknown plugin 'gangg'"),
    "not YAML": ("actions: [", 255, "line 2: not YAML"),
    "a ConfigMap": (CONFIG_MAP, 255, "line 1: unknown action 'allocat'"),
    "another ConfigMap": ("kind: ConfigMap\n", 255, "has no data[volcano-scheduler.conf]"),
    "empty": ("", 255, "the configuration is empty"),
}


@pytest.mark.parametrize("case", FILES)
def test_check_reports_the_line_and_the_reason(case: str, tmp_path: Path) -> None:
    text, want_code, want = FILES[case]
    path = tmp_path / "scheduler.conf"
    path.write_text(text)
    done = CliRunner().invoke(main, ["config", "check", str(path)])
    assert done.exit_code == want_code
    assert want in done.output


def test_check_names_a_file_that_does_not_exist(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["config", "check", str(tmp_path / "gone")])
    assert done.exit_code == 255
    assert "no such file or directory" in done.output


def test_show_prints_the_configuration_in_force_and_its_source(
    config: Path, admin: SyncClient, namespace: str
) -> None:
    words = ["config", "show", "--scheduler-namespace", namespace]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 255
    assert f"no scheduler has recorded its configuration in namespace {namespace}" in done.output
    state = SchedulerState("ConfigMap a/b", VALID, refused="ConfigMap a/b: line 3: no")
    data = {"volcano": msgspec.json.encode(state).decode(), "old": "{}", "nonsense": "]"}
    body = {"metadata": {"name": SCHEDULER_STATE_CONFIG_MAP}, "data": data}
    admin.create(CONFIGMAPS, body, namespace=namespace)
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0
    assert done.output == (
        "# scheduler volcano, from: ConfigMap a/b\n"
        "# refused, so this one stays in force: ConfigMap a/b: line 3: no\n" + VALID
    )


def test_status_reports_refused_configurations_and_failing_plugins() -> None:
    failed = (
        FailedPlugin("rack", 12, "predicate", "ValueError: no such rack", "  File x\n    y\n"),
        FailedPlugin("cool", 1, "node_order", "KeyError: 'heat'"),
    )
    state = SchedulerState("default", VALID, refused="f: line 3: no", failed_plugins=failed)
    assert list(problems({"volcano": state})) == [
        "configuration refused, the last valid one stays: f: line 3: no",
        "plugin rack failed 12 times and lost its vote each time, last in predicate: ValueError: "
        "no such rack\n  File x\n    y",
        "plugin cool failed once and lost its vote each time, last in node_order: KeyError: 'heat'",
    ]
    assert list(problems({"volcano": SchedulerState("default", VALID)})) == []
