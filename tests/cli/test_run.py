"""`hekla run`: what it refuses before it uses or starts a cluster."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hekla.cli.command_line import command_line
from hekla.cli.command_words import unread_input
from hekla.cli.main import main
from hekla.cli.vcctl import manifests
from hekla.kube import cluster_choice
from hekla.nodeagent import environment
from hekla.sdk.host_environment import Prepared

JOB = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: a}
spec:
  minAvailable: 1
  tasks:
  - name: w
    template:
      spec:
        containers: [{name: main, image: host}]
"""


class ReachedTheCluster(Exception):
    """The manifests were accepted."""


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise ReachedTheCluster

    monkeypatch.setattr(cluster_choice, "find_named", stop)


def run(path: Path, text: str | None = None, *flags: str) -> Result:
    if text is not None:
        path.write_text(text)
    return CliRunner().invoke(main, ["run", str(path), *flags])


def is_accepted(result: Result) -> bool:
    return isinstance(result.exception, ReachedTheCluster)


def test_a_correct_manifest_is_accepted(tmp_path: Path) -> None:
    done = run(tmp_path / "job.yaml", JOB)
    assert is_accepted(done), done.output
    assert done.output == ""


MISSPELT = {
    "minAvailable": ("minAvailabel", "spec.minAvailabel", "did you mean 'minAvailable'?"),
    "containers": (
        "contaners", "spec.tasks[0].template.spec.contaners", "did you mean 'containers'?",
    ),
    "image": ("imgae", "spec.tasks[0].template.spec.containers[0].imgae", "'image'?"),
    "metadata: {name: a}": ("metadata: {name: a, lables: {}}", "metadata.lables", "'labels'?"),
}  # fmt: skip


@pytest.mark.parametrize("right", MISSPELT)
def test_a_misspelt_field_is_refused_with_the_closest_name(right: str, tmp_path: Path) -> None:
    wrong, want_path, want_hint = MISSPELT[right]
    done = run(tmp_path / "job.yaml", JOB.replace(right, wrong))
    assert done.exit_code == 1
    assert f"Job a: {want_path}: unknown field" in done.output
    assert want_hint in done.output
    assert is_accepted(run(tmp_path / "job.yaml", None, "--no-check"))


def test_fields_of_other_kinds_are_checked_too(tmp_path: Path) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndatta: {a: b}\n"
    assert "ConfigMap c: datta: unknown field" in run(tmp_path / "c.yaml", text).output
    custom = "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: c}\nanything: 1\n"
    assert is_accepted(run(tmp_path / "c.yaml", custom))


def test_a_key_given_twice_is_refused_with_its_line(tmp_path: Path) -> None:
    twice = JOB.replace("  - name: w\n", "  - name: w\n    template:\n      spec: {}\n")
    done = run(tmp_path / "job.yaml", twice)
    assert done.exit_code == 1
    assert "line 10: the key 'template' is given twice (spec.tasks[0].template)" in done.output


def test_an_empty_file_is_an_error(tmp_path: Path) -> None:
    for text in ("", "# only a comment\n", "---\n---\n"):
        done = run(tmp_path / "job.yaml", text)
        assert done.exit_code == 1
        assert "contains no object" in done.output


def test_a_document_without_a_kind_is_an_error_and_so_is_a_list(tmp_path: Path) -> None:
    assert "kind is missing" in run(tmp_path / "job.yaml", "apiVersion: v1\n").output
    no_name = JOB.replace("{name: a}", "{}")
    assert "metadata.name is missing" in run(tmp_path / "job.yaml", no_name).output
    no_map = JOB.replace("{name: a}", "3")
    assert "metadata of document 1 is no map" in run(tmp_path / "job.yaml", no_map).output
    assert "document 1 is not an object" in run(tmp_path / "job.yaml", "- a\n").output
    assert "is not YAML: line 2" in run(tmp_path / "job.yaml", "a: [").output


def test_the_manifests_of_a_directory_run_in_the_order_of_their_names(tmp_path: Path) -> None:
    """As `kubectl apply -f DIR`: by suffix, without directories below it."""
    (tmp_path / "below").mkdir()
    (tmp_path / "notes.txt").write_text("no manifest")
    for name in ("b.yml", "a.yaml", "c.json"):
        (tmp_path / name).write_text(
            f'{{"apiVersion": "v1", "kind": "Secret", "metadata": {{"name": "{name}"}}}}'
        )
    objects = manifests.read_objects(tmp_path)
    assert [obj["metadata"]["name"] for obj in objects] == ["a.yaml", "b.yml", "c.json"]
    assert is_accepted(run(tmp_path))


def test_a_directory_without_manifests_is_an_error(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.exit_code == 1
    assert "contains no file that ends in .json, .yaml, .yml" in done.output


def test_variables_and_words_of_a_command_line_are_not_expanded() -> None:
    line = command_line(["sh", "-c", "echo $$ $(date)"], env=["PW=a$$(HOME)"])
    job = line.job(Prepared("/"))
    (container,) = job["spec"]["tasks"][0]["template"]["spec"]["containers"]
    variables = environment.container_environment(
        job, container, environment.Sources(), base={"HOME": "/"}, node={}, pod_ip=""
    )
    assert variables["PW"] == "a$$(HOME)"
    assert environment.command_line(container, variables) == ["sh", "-c", "echo $$ $(date)"]


ARRAY_CPUS = {
    "an array": ({"array": "0-9"}, "1"),
    "an array that says so": ({"array": "0-9", "cpu": "4"}, "4"),
    "an array that opts out": ({"array": "0-9", "cpu": "0"}, "0"),
    "no array": ({}, None),
}


@pytest.mark.parametrize("case", ARRAY_CPUS)
def test_each_index_of_an_array_requests_a_cpu_unless_told_otherwise(case: str) -> None:
    given, want = ARRAY_CPUS[case]
    job = command_line(["true"], **given).job(Prepared("/"))
    (container,) = job["spec"]["tasks"][0]["template"]["spec"]["containers"]
    assert container.get("resources", {}).get("requests", {}).get("cpu") == want


NONSENSE = {
    "megabytes": (("--memory", "64"), "--memory: 64 is 64 bytes; did you mean 64Mi?"),
    "milli": (("--memory", "512m"), "--memory: 512m is 0.512 bytes; did you mean 512Mi?"),
    "no unit of Kubernetes": (("--memory", "4GB"), "did you mean 4Gi?"),
    "no number": (("--cpu", "abc"), "--cpu: quantity 'abc': does not look like a number"),
    "negative": (("--cpu", "-1"), "--cpu: -1 is negative"),
    "a variable that shells cannot read": (("-e", "1A=2"), "'1A' is no name of a variable"),
    "a variable without letters": (("-e", "-=2"), "'-' is no name of a variable"),
}


@pytest.mark.parametrize("case", NONSENSE)
def test_nonsense_as_an_amount_or_a_variable_is_refused_once_with_a_hint(case: str) -> None:
    flags, want = NONSENSE[case]
    done = CliRunner().invoke(main, ["run", *flags, "--", "true"])
    assert done.exit_code == 2
    assert done.output.count(want) == 1, done.output
    assert "^(" not in done.output


def test_usual_amounts_and_variables_are_accepted() -> None:
    flags = ("--memory", "1Mi", "--cpu", "500m", "--gpu", "1", "-e", "_X1=", "-e", "a.b=c")
    assert is_accepted(CliRunner().invoke(main, ["run", *flags, "--", "true"]))
    assert is_accepted(CliRunner().invoke(main, ["run", "--memory", "0", "--", "true"]))


WITHOUT_DASHES = {
    "a program": (("sh", "job"), "hekla run -- sh job"),
    "flags of both": (
        ("--cpu", "2", "python3", "train.py", "--lr", "3"),
        "hekla run --cpu 2 -- python3 train.py --lr 3",
    ),
    "a script": (("train.py",), "hekla run -- python train.py"),
    "a script that exists": (("./go.sh", "now"), "hekla run -- bash ./go.sh now"),
}


@pytest.mark.parametrize("case", WITHOUT_DASHES)
def test_a_command_without_dashes_is_answered_with_the_line_that_was_meant(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "go.sh").touch()
    words, want = WITHOUT_DASHES[case]
    done = CliRunner().invoke(main, ["run", *words])
    assert done.exit_code == 2
    assert f"a command comes after `--`: {want}\n" in done.output


def test_a_missing_file_and_an_unknown_option_are_errors_as_before(tmp_path: Path) -> None:
    assert "no such file" in CliRunner().invoke(main, ["run", "nosuch.yaml"]).output
    (tmp_path / "model.bin").write_bytes(b"\x80\xff")
    done = CliRunner().invoke(main, ["run", str(tmp_path / "model.bin")])
    assert "model.bin is no text in UTF-8\n  give a manifest" in done.output
    assert "No such option '--cpus'" in CliRunner().invoke(main, ["run", "--cpus", "1"]).output
    job = tmp_path / "job.yaml"
    job.write_text(JOB)
    # `test` is a program, and the name of a context here.
    assert is_accepted(CliRunner().invoke(main, ["run", "--context", "test", str(job)]))
    both = CliRunner().invoke(main, ["run", "nosuch.yaml", "--", "date"])
    assert "not both" in both.output


def test_input_that_the_command_does_not_get_is_named(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    assert unread_input(ours) == ""
    os.write(theirs, b"data")
    assert "--input" in unread_input(ours)
    os.close(ours)
    os.close(theirs)
    with (tmp_path / "f").open("w+") as file:
        assert unread_input(file.fileno()) == ""
        file.write("data")
        file.flush()
        assert "--input" in unread_input(file.fileno())
    with open(os.devnull) as null:
        assert unread_input(null.fileno()) == ""


def test_workloads_that_are_not_followed_are_named_and_other_objects_are_not() -> None:
    module = import_module("hekla.cli.run")

    def note(*kinds: tuple[str, str]) -> str:
        objects = [{"apiVersion": version, "kind": kind} for version, kind in kinds]
        request = module._RunRequest(objects, replace=False, is_command=False, files=["a b.yaml"])
        return str(module._unfollowed_note(request))

    assert "`kubectl get -f 'a b.yaml'` shows these objects" in note(("v1", "Pod"))
    assert "nothing is waited for" in note(("batch/v1", "Job"))
    assert note(("v1", "ConfigMap")) == ""
    assert note(("v1", "Pod"), ("batch.volcano.sh/v1alpha1", "Job")) == ""


def ttl_of(*flags: str) -> object:
    given = dict(zip(("ttl",), flags, strict=False))
    here = Prepared("/")
    return command_line(["true"], **given).job(here)["spec"].get("ttlSecondsAfterFinished")


def test_job_of_a_command_is_deleted_after_its_ttl_unless_there_is_none() -> None:
    assert ttl_of("7d") == 7 * 86_400
    assert ttl_of("90m") == 5400
    assert ttl_of("none") is None


@pytest.mark.parametrize("ttl", ["soon", "-1h", "99999d", "7", ""])
def test_nonsense_as_a_ttl_is_refused(ttl: str) -> None:
    done = CliRunner().invoke(main, ["run", "--ttl", ttl, "--", "true"])
    assert done.exit_code == 2
    assert "--ttl" in done.output


def test_ttl_for_manifests_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path / "job.yaml", JOB, "--ttl", "1d")
    assert "--ttl: only for a command" in done.output
