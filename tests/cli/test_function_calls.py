"""Functions as Secrets and jobs, and their results in the output of pods; no server needed."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from hekla import CallTooLarge, FunctionFailed, Job, Task
from hekla.api import wellknown
from hekla.sdk.functions import call_runner
from hekla.sdk.functions.calls import TOKEN, Calls, call_job, job_name
from hekla.sdk.functions.results import Outcome, is_result, outcome_in
from hekla.units.objects import Object


class NotPickled(Exception):
    """An exception that pickle cannot rebuild: it needs two arguments."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


def fail(error: type[Exception], *arguments: str) -> None:
    raise error(*arguments)


def pod(directory: Path, secret: Object, **environ: str) -> tuple[int, list[str], str]:
    """Run what a pod runs; return its exit code, its output and its errors."""
    directory.mkdir()
    for name, content in secret["data"].items():
        (directory / name).write_bytes(base64.b64decode(content))
    done = subprocess.run(
        [sys.executable, directory / "call_runner.py"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "/usr/bin:/bin", **environ},
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


def made(function: Callable[..., Any], *arguments: Any, task: Task | None = None) -> Any:
    calls = Calls(function, [(arguments, {})])
    return call_job(calls, task or Task(), Job(""), is_local=True)


def ran(tmp_path: Path, function: Callable[..., Any], *arguments: Any) -> Outcome:
    job, secret = made(function, *arguments)
    _, lines, errors = pod(tmp_path / "call", secret)
    outcome = outcome_in(lines, job["metadata"]["annotations"][TOKEN])
    assert outcome is not None, errors
    return outcome


def test_closure_returns_its_value(tmp_path: Path) -> None:
    base = 40
    assert ran(tmp_path, lambda number: base + number, 2).result("pod a/b") == 42


def test_each_pod_of_a_map_runs_its_own_call(tmp_path: Path) -> None:
    calls = Calls(pow, [((2, exponent), {}) for exponent in (3, 5)])
    job, secret = call_job(calls, Task(), Job("powers"), is_local=True)
    token = job["metadata"]["annotations"][TOKEN]
    assert job["spec"]["tasks"][0]["replicas"] == 2
    assert job["metadata"]["annotations"][wellknown.ARRAY_INDICES] == "0-1"
    _, first, _ = pod(tmp_path / "0", secret, HEKLA_ARRAY_INDEX="0")
    _, second, _ = pod(tmp_path / "1", secret, HEKLA_ARRAY_INDEX="1")
    results = [outcome_in(lines, token) for lines in (first, second)]
    assert [result.value for result in results if result] == [8, 32]


def test_exception_is_raised_with_the_traceback_of_the_pod(tmp_path: Path) -> None:
    job, secret = made(fail, KeyError, "weights")
    code, lines, errors = pod(tmp_path / "call", secret)
    assert code == 1
    assert "KeyError: 'weights'" in errors
    outcome = outcome_in(lines, job["metadata"]["annotations"][TOKEN])
    assert outcome is not None
    with pytest.raises(KeyError, match="weights") as caught:
        outcome.result("pod ml/train-call-0")
    (note,) = caught.value.__notes__
    assert note.startswith("in pod ml/train-call-0:\nTraceback")
    assert "raise error(*arguments)" in note


def test_exception_that_cannot_be_pickled_is_told_as_text(tmp_path: Path) -> None:
    with pytest.raises(FunctionFailed, match=r"^pod a/b: Traceback(.|\n)*NotPickled: onetwo$"):
        ran(tmp_path, fail, NotPickled, "one", "two").result("pod a/b")


def test_exit_is_an_exception_too(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="3"):
        ran(tmp_path, sys.exit, 3).result("pod a/b")


def test_result_that_cannot_be_pickled_says_so(tmp_path: Path) -> None:
    outcome = ran(tmp_path, Lock)
    with pytest.raises(FunctionFailed, match="the result cannot be pickled"):
        outcome.result("pod a/b")


def test_large_result_is_joined_and_a_larger_one_is_refused(tmp_path: Path) -> None:
    size = 10 * call_runner.CHUNK
    outcome = ran(tmp_path, os.urandom, size)
    assert len(outcome.result("pod a/b")) == size
    with pytest.raises(FunctionFailed, match="4 MiB compressed: write it to a file"):
        ran(tmp_path / "call", os.urandom, call_runner.MAX_RESULT_BYTES + 1).result("pod a/b")


def test_output_without_a_newline_before_the_result_does_not_hide_it(tmp_path: Path) -> None:
    def chatty() -> int:
        print("working", end="")
        return 7

    job, secret = made(chatty)
    _, lines, _ = pod(tmp_path / "call", secret)
    outcome = outcome_in(lines, job["metadata"]["annotations"][TOKEN])
    assert outcome is not None
    assert outcome.value == 7
    assert any(line.startswith("working") and not is_result(line) for line in lines)


def test_part_of_a_result_and_the_result_of_another_job_are_none(tmp_path: Path) -> None:
    job, secret = made(lambda: [str(number) for number in range(9_000)])
    token = job["metadata"]["annotations"][TOKEN]
    _, lines, _ = pod(tmp_path / "call", secret)
    assert outcome_in(lines, token) is not None
    assert outcome_in(lines[:-1], token) is None
    assert outcome_in(lines, "0" * 16) is None
    assert outcome_in([line[:-4] + "!!!!" for line in lines], token) is None


def test_another_version_of_python_is_refused_by_name(tmp_path: Path) -> None:
    job, secret = made(abs, -1)
    about = base64.b64decode(secret["data"]["about.json"]).decode()
    version = "{}, {}".format(*sys.version_info)
    secret["data"]["about.json"] = base64.b64encode(
        about.replace(version, "3, 8").encode()
    ).decode()
    code, lines, errors = pod(tmp_path / "call", secret)
    assert code == 1
    assert "pickled by Python 3.8, but the image runs 3." in errors
    outcome = outcome_in(lines, job["metadata"]["annotations"][TOKEN])
    assert outcome is not None
    with pytest.raises(FunctionFailed, match="use an image with the same version"):
        outcome.result("pod a/b")


def test_arguments_larger_than_a_secret_are_refused_with_the_next_step() -> None:
    with pytest.raises(CallTooLarge, match="pass paths of files, or load the data in the function"):
        made(len, bytes(range(256)) * 8_000)


def test_cluster_elsewhere_needs_an_image_with_python() -> None:
    calls = Calls(abs, [((-1,), {})])
    with pytest.raises(ValueError, match=r'task=Task\(image="python:3\.'):
        call_job(calls, Task(), Job(""), is_local=False)
    job, _ = call_job(calls, Task(image="python:3.11"), Job(""), is_local=False)
    container = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    assert container["command"][-1] == "python3"


def test_task_with_a_command_is_refused() -> None:
    with pytest.raises(ValueError, match="has no command"):
        made(abs, -1, task=Task(command="true"))


def test_volumes_of_the_task_stay() -> None:
    volumes = [{"name": "data", "emptyDir": {}}]
    job, _ = made(abs, -1, task=Task(template={"spec": {"volumes": volumes}}))
    names = [each["name"] for each in job["spec"]["tasks"][0]["template"]["spec"]["volumes"]]
    assert names == ["data", "hekla-call"]


@pytest.mark.parametrize(
    ("function", "stem"), [(fail, "fail"), (lambda: 0, "lambda"), (Task(), "task")]
)
def test_job_is_named_after_its_function(function: Any, stem: str) -> None:
    assert job_name(function).rpartition("-")[0] == stem


def test_call_with_an_environment_runs_in_its_python_without_packages_of_this_one(
    tmp_path: Path,
) -> None:
    marks = {wellknown.RUN_ENVIRONMENT: "key"}
    task = Task(annotations=marks, env={"VIRTUAL_ENV": str(tmp_path)})
    job, secret = made(pow, 2, 3, task=task)
    (container,) = job["spec"]["tasks"][0]["template"]["spec"]["containers"]
    assert container["command"][3] == f"{tmp_path}/bin/python"
    path = json.loads(base64.b64decode(secret["data"]["about.json"]))["path"]
    assert not any("site-packages" in entry for entry in path)
    assert os.getcwd() in path or any(entry.startswith(os.getcwd()) for entry in path)


def test_call_in_a_snapshot_imports_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, snapshot = tmp_path / "project", tmp_path / "snapshot"
    for where, value in ((project, 1), (snapshot, 2)):
        (where / "src").mkdir(parents=True)
        (where / "src" / "answer.py").write_text(f"value = {value}\n")
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(str(project / "src"))
    task = Task(annotations={wellknown.RUN_SNAPSHOT: "key"}, working_dir=str(snapshot))
    job, secret = made(values, task=task)
    _, lines, errors = pod(tmp_path / "call", secret)
    outcome = outcome_in(lines, job["metadata"]["annotations"][TOKEN])
    assert outcome is not None, errors
    assert outcome.value == (2, str(snapshot))


def values() -> tuple[int, str]:
    import answer  # type: ignore[import-not-found]

    return answer.value, os.getcwd()
