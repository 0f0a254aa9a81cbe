"""`hekla run` on a running cluster, in a pipe and on a terminal."""

import codecs
import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

EXAMPLES = Path(__file__).parents[2] / "examples"
HEKLA = [sys.executable, "-m", "hekla.cli.main"]


def hekla(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HEKLA, *words], capture_output=True, text=True, timeout=600, check=False, cwd=cwd
    )


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    where = str(tmp_path_factory.mktemp("cluster"))
    started = hekla("up", "--port", "0", "--detach", "--pod-user", "owner", "--data-dir", where)
    assert started.returncode == 0, started.stderr
    yield where
    hekla("down", "--data-dir", where)


class Terminal:
    """A command on a pseudo-terminal."""

    def __init__(self, *words: str) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [*HEKLA, *words], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self._written = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    @property
    def seen(self) -> str:
        """Return the visible text without control sequences."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._written)

    def read_until(self, text: str) -> None:
        while text not in self.seen:
            self.read_more()

    def read_more(self) -> None:
        self._written += self._decoder.decode(os.read(self._ours, 65536))

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> int:
        with contextlib.suppress(OSError):  # EIO: the other side is closed
            while True:
                self.read_more()
        os.close(self._ours)
        return self.process.wait(timeout=600)


def job_phase(where: str, name: str) -> str:
    shown = hekla(
        "job", "wait", name, "--timeout", "600", "--kubeconfig", f"{where}/kubeconfig"
    )  # fmt: skip
    return shown.stdout + shown.stderr


def test_a_command_runs_in_this_directory_and_gives_its_exit_code(up: str, tmp_path: Path) -> None:
    done = hekla(
        "run", "--data-dir", up, "--replicas", "2", "-e", "GREETING=hi", "--cpu", "100m",
        "--", "sh", "-c", "echo $GREETING from $(pwd); exit 7",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 7, done.stdout + done.stderr
    assert done.stdout.count(f"| hi from {tmp_path}") == 2


def test_a_manifest_and_a_command_at_once_are_refused(up: str) -> None:
    done = hekla("run", "--data-dir", up, str(EXAMPLES / "hello-gang.yaml"), "--", "date")
    assert done.returncode == 2
    assert "give manifests or a command after `--`, not both" in done.stderr


def test_a_second_run_suggests_replace_and_replace_works(up: str) -> None:
    words = ("run", "--data-dir", up, str(EXAMPLES / "hello-gang.yaml"))
    assert hekla(*words).returncode == 0
    again = hekla(*words)
    assert again.returncode == 1
    assert "--replace" in again.stderr
    replaced = hekla(*words, "--replace")
    assert replaced.returncode == 0, replaced.stderr
    assert "hello-gang replaced" in replaced.stdout
    assert "adding up: 42" in replaced.stdout


def test_output_of_other_jobs_is_not_shown(up: str) -> None:
    hekla("run", "--data-dir", up, "--name", "noisy", "--", "echo", "noise")
    done = hekla("run", "--data-dir", up, "--name", "quiet", "--", "echo", "signal")
    assert "signal" in done.stdout
    assert "noise" not in done.stdout


def test_the_output_of_each_container_run_is_shown_once(up: str, tmp_path: Path) -> None:
    """Also if its second run starts before the first one was observed."""
    failed = tmp_path / "failed"
    script = (
        f"test -e {failed} && echo second words && exit; touch {failed}; echo first words; exit 1"
    )
    container = {"name": "main", "image": "host", "command": ["sh", "-c", script]}
    template = {"spec": {"restartPolicy": "OnFailure", "containers": [container]}}
    manifest = tmp_path / "stubborn.yaml"
    manifest.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "batch.volcano.sh/v1alpha1",
                "kind": "Job",
                "metadata": {"name": "stubborn"},
                "spec": {"tasks": [{"name": "t", "replicas": 1, "template": template}]},
            }
        )
    )
    done = hekla("run", "--data-dir", up, str(manifest))
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line for line in done.stdout.splitlines() if "words" in line]
    assert said == ["stubborn-t-0 | first words", "stubborn-t-0 | second words"]


def test_the_output_of_pods_that_a_policy_deletes_is_complete(up: str, tmp_path: Path) -> None:
    """The pods of each attempt have the same names, and are deleted at once."""
    script = r"printf 'start\nreason %s\n' $VC_TASK_INDEX; exit 3"  # one write
    container = {"name": "main", "image": "host", "command": ["sh", "-c", script]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {
        "minAvailable": 2,
        "maxRetry": 2,
        "policies": [{"event": "PodFailed", "action": "RestartJob"}],
        "tasks": [{"name": "t", "replicas": 2, "template": template}],
    }
    manifest = tmp_path / "again.yaml"
    manifest.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "batch.volcano.sh/v1alpha1",
                "kind": "Job",
                "metadata": {"name": "again"},
                "spec": spec,
            }
        )
    )
    done = hekla("run", "--data-dir", up, str(manifest))
    assert done.returncode == 1, done.stdout + done.stderr
    starts, reasons = done.stdout.count("| start"), done.stdout.count("| reason")
    assert starts == reasons >= 3
    previous = hekla(
        "job", "logs", "again", "--previous", "--kubeconfig", f"{up}/kubeconfig"
    ).stdout
    assert "| reason" in previous


def test_a_flow_is_followed_until_it_finishes_with_the_output_of_its_jobs(tmp_path: Path) -> None:
    flow = next(p for p in sorted(EXAMPLES.glob("*.yaml")) if "kind: JobFlow" in p.read_text())
    done = hekla("run", "--host-images", "--data-dir", str(tmp_path), str(flow))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Completed" in done.stdout


def test_without_a_cluster_endless_objects_are_rejected(tmp_path: Path) -> None:
    queue = tmp_path / "queue.yaml"
    queue.write_text("apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: q}")
    done = hekla("run", "--data-dir", str(tmp_path / "state"), str(queue))
    assert done.returncode == 1
    assert "hekla up -d" in done.stderr


def test_on_a_terminal_progress_stays_in_view(up: str) -> None:
    screen = Terminal("run", "--data-dir", up, "--name", "seen", "--", "echo", "out")
    assert screen.end() == 0, screen.seen
    assert "seen-worker-0 │" in screen.seen
    assert "1 succeeded of 1" in screen.seen


def test_ctrl_c_on_a_terminal_can_leave_the_job_running(up: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    line = f"echo begun; until [ -e {gate} ]; do sleep 0.05; done"
    screen = Terminal("run", "--data-dir", up, "--name", "left", "--", "sh", "-c", line)
    screen.read_until("│ begun")
    screen.process.send_signal(signal.SIGINT)
    screen.read_until("or stay (s)?")
    screen.type("d\n")
    assert screen.end() == 0, screen.seen
    gate.touch()
    assert "Completed" in job_phase(up, "left")


def test_the_question_after_ctrl_c_stays_below_later_output(up: str) -> None:
    """It was printed once, and output scrolled it away."""
    line = "n=0; while :; do n=$((n+1)); echo line $n; sleep 0.02; done"
    screen = Terminal("run", "--data-dir", up, "--name", "chatty", "--", "sh", "-c", line)
    screen.read_until("│ line 1")
    screen.process.send_signal(signal.SIGINT)
    screen.read_until("or stay (s)?")
    before = len(screen.seen)
    while screen.seen[before:].count("or stay (s)?") < 3:
        screen.read_more()
    assert screen.seen[before:].count("│ line") >= 1
    screen.type("a\n")
    assert screen.end() == 130, screen.seen
    assert "job chatty is kept: `hekla job resume chatty" in " ".join(screen.seen.split())


def test_the_exit_code_is_that_of_the_pod_that_failed_not_of_those_ended_for_it(up: str) -> None:
    script = '[ "$VC_TASK_INDEX" = 0 ] && exit 3; echo up; exec sleep 1000'
    words = ["--data-dir", up, "--name", "pair", "-r", "2", "--retries", "1", "-p", "env"]
    done = hekla("run", *words, "--", "sh", "-c", script)
    assert done.returncode == 3, done.stdout
    assert "pair-worker-0: container worker exited with code 3" in done.stdout


def test_a_job_runs_in_the_namespace_of_the_flag(up: str, tmp_path: Path) -> None:
    file = tmp_path / "ml.yaml"
    file.write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: ml}\n")
    assert hekla("run", "--data-dir", up, str(file)).returncode == 0
    words = ["--data-dir", up, "--name", "there", "--", "sh", "-c", "exit 3"]
    failed = hekla("run", "-n", "ml", *words)
    assert failed.returncode == 3
    assert "`hekla explain there -n ml --data-dir" in failed.stdout + failed.stderr
    assert "there" in hekla("job", "list", "-n", "ml", "--data-dir", up).stdout
    assert "there" not in hekla("job", "list", "-n", "default", "--data-dir", up).stdout
    missing = hekla("run", "-n", "mll", *words)
    assert missing.returncode == 1
    assert 'namespaces "mll" not found' in missing.stderr
    job = yaml.safe_load((EXAMPLES / "hello-gang.yaml").read_text())
    file.write_text(yaml.safe_dump({**job, "metadata": {"name": "a", "namespace": "other"}}))
    refused = hekla("run", "-n", "ml", "--data-dir", up, str(file))
    assert refused.returncode == 2
    assert "--namespace ml: Job a is in namespace other by its manifest" in refused.stderr


def test_what_keeps_a_job_from_running_is_printed_in_a_pipe(up: str, tmp_path: Path) -> None:
    child = subprocess.Popen(
        [*HEKLA, "run", "--data-dir", up, "--name", "nowhere", "-i", "nosuch:1", "--", "date"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stdout is not None
    with child.stdout as output:
        for line in output:
            if "image 'nosuch:1' is not mapped" in line:
                break
        assert "job nowhere is pending: " in line
        assert "image: host" in next(output)
        child.send_signal(signal.SIGINT)
        output.read()
    assert child.wait(timeout=600) == 130


def test_ctrl_c_twice_on_a_terminal_aborts(up: str) -> None:
    screen = Terminal("run", "--data-dir", up, "--name", "ended", "--", "sleep", "1000")
    screen.read_until("1 running of 1")
    screen.process.send_signal(signal.SIGINT)
    screen.read_until("or stay (s)?")
    screen.process.send_signal(signal.SIGINT)
    assert screen.end() == 130, screen.seen
    assert "Aborted" in screen.seen


def test_an_interrupt_in_a_pipe_aborts_the_job(up: str) -> None:
    child = subprocess.Popen(
        [*HEKLA, "run", "--data-dir", up, "--name", "piped", "--", "sleep", "1000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert child.stdout is not None
    with child.stdout as output:
        for line in output:
            if "piped: Running" in line:
                child.send_signal(signal.SIGINT)
                break
        rest = output.read()
    assert child.wait(timeout=600) == 130
    assert "job piped: Aborted" in rest
    assert f"job piped is kept: `hekla job resume piped --data-dir {up}` starts it again" in rest
    assert f"`hekla job delete piped --data-dir {up}` deletes it" in rest
