"""`hekla run` with an environment, a snapshot, an input and an output; the same from Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.wheels import requirements

SCRIPT = """\
import os, sys, greeting
words = open(os.environ["HEKLA_INPUT"]).read().strip(), greeting.version, sys.prefix
name = "result-" + os.environ["HEKLA_ARRAY_INDEX"]
open(os.path.join(os.environ["HEKLA_OUTPUT"], name), "w").write(os.getcwd())
print(*words)
"""
IN_PYTHON = """\
from hekla import HostEnvironment, Job, Task, submit
files = {"requirements": "requirements.txt", "inputs": ["in.txt"], "outputs": ["out"]}
here = HostEnvironment(sync=True, **files)
task = here.apply(Task("worker", command="python train.py", env={"HEKLA_ARRAY_INDEX": "sdk"}))
job = submit(Job("train", [task]))
print(job.wait(timeout_s=300))
print(*job.logs())
def inside():
    import greeting, sys
    return greeting.version, sys.prefix
call = Task(env={"HEKLA_ARRAY_INDEX": "call"})
print("function", *submit(inside, task=here.apply(call)).result(timeout_s=300))
"""


def test_array_runs_in_an_environment_and_a_snapshot(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    requirements(project, "greeting==2.0")
    (project / "train.py").write_text(SCRIPT)
    (project / "in.txt").write_text("hello\n")
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "KUBECONFIG": ""}
    environ["XDG_STATE_HOME"] = str(tmp_path / "state")
    line = [sys.executable, "-m", "hekla.cli.main"]
    flags = [
        "--requirements",
        "requirements.txt",
        "--sync",
        "--input",
        "in.txt",
        "--output",
        "out",
        "--array",
        "0-1",
    ]

    def called(words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=project,
            env=environ,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    done = called([*line, "run", *flags, "--", "python", "train.py"])
    assert done.returncode == 0, done.stdout + done.stderr
    [environment] = (tmp_path / "cache" / "hekla" / "environments").glob("*[!k]")
    assert done.stdout.count(f"hello 2.0 {environment}") == 2
    assert f"output {project}/out: 2 files" in done.stderr
    where = {path.read_text() for path in (project / "out").iterdir()}
    [snapshot] = (tmp_path / "cache" / "hekla" / "snapshots").glob("*[!k]")
    assert where == {str(snapshot)}
    up = called([*line, "up", "-d", "--port", "0", "--pod-user", "owner"])
    assert up.returncode == 0, up.stderr
    try:
        done = called([sys.executable, "-c", IN_PYTHON])
    finally:
        called([*line, "down"])
    assert "Completed" in done.stdout, done.stdout + done.stderr
    assert f"hello 2.0 {environment}" in done.stdout
    assert f"function 2.0 {environment}" in done.stdout, done.stdout + done.stderr
    assert (project / "out" / "result-sdk").read_text() == str(snapshot)
