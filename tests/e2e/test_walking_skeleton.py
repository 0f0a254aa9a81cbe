"""One job through every layer: from a manifest to processes and their result."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def hekla_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hekla.cli.main", "run", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_a_two_task_gang_runs_to_completion_and_its_output_is_shown(tmp_path: Path) -> None:
    done = hekla_run("--data-dir", str(tmp_path), str(EXAMPLES / "hello-gang.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "job hello-gang: Completed" in done.stdout
    assert "hello-gang-leader-0 | adding up: 42" in done.stdout
    assert "hello-gang-worker-1 | worker hello-gang-worker-1 reporting" in done.stdout


def test_a_job_that_fails_gives_a_failing_exit_code(tmp_path: Path) -> None:
    manifest = tmp_path / "job.yaml"
    manifest.write_text(
        (EXAMPLES / "hello-gang.yaml").read_text().replace("echo worker", "exit 3; echo worker")
    )
    done = hekla_run("--data-dir", str(tmp_path / "state"), str(manifest))
    assert done.returncode == 1
    assert "job hello-gang: Failed" in done.stdout
