"""What a job uses of this machine: paths, refusals, and the flags of `hekla run`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hekla import Job, Task
from hekla.cli.command_line import command_line
from hekla.cli.main import main
from hekla.kube import cluster_choice
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.resources import NODES
from hekla.kube.sync_client import SyncClient
from hekla.sdk import host_paths
from hekla.sdk.host_environment import (
    HostEnvironment,
    HostNodes,
    keys_in_use,
    refuse_elsewhere,
)
from hekla.sdk.host_paths import HostPathError, contents
from hekla.units.objects import Object


def silent(_: str) -> None:
    pass


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that everybody may enter; tests run below /tmp, which pods do not share."""
    monkeypatch.setattr(host_paths, "_OF_THE_POD", ())
    for path in (tmp_path, *tmp_path.parents):
        if not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o055)
    return tmp_path


def test_command_finds_its_inputs_and_outputs_in_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").touch()
    (tmp_path / "b").mkdir()
    here = HostEnvironment(inputs=["a", "b"], outputs=["out/deep"])
    made = here.prepare(for_others=False, say=silent)
    assert made.working_dir == str(tmp_path)
    assert made.variables["HEKLA_INPUT"] == f"{tmp_path}/a"
    assert made.variables["HEKLA_INPUTS"] == f"{tmp_path}/a:{tmp_path}/b"
    assert made.variables["HEKLA_OUTPUT"] == f"{tmp_path}/out/deep"
    assert (tmp_path / "out" / "deep").is_dir()


def test_missing_input_is_refused_and_no_output_is_made(tmp_path: Path) -> None:
    here = HostEnvironment(inputs=[tmp_path / "no"], outputs=[tmp_path / "out"])
    with pytest.raises(HostPathError, match="does not exist; correct the path"):
        here.prepare(for_others=False, say=silent)
    assert not (tmp_path / "out").exists()


def test_output_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(HostPathError, match="is no directory"):
        host_paths.output_directory(tmp_path / "f", for_others=False)


def test_pods_of_other_users_get_a_new_output_that_they_can_write(shared: Path) -> None:
    out = host_paths.output_directory(shared / "out", for_others=True)
    assert out.stat().st_mode & 0o7777 == 0o1777


def test_existing_output_that_pods_cannot_write_is_refused_with_the_command(shared: Path) -> None:
    (shared / "out").mkdir(mode=0o755)
    with pytest.raises(HostPathError, match=f"chmod 1777 {shared}/out"):
        host_paths.output_directory(shared / "out", for_others=True)


def test_input_in_a_private_directory_is_refused_for_pods_of_other_users(shared: Path) -> None:
    closed = shared / "closed"
    closed.mkdir(mode=0o700)
    (closed / "data").touch()
    with pytest.raises(HostPathError, match=f"{closed} is private"):
        host_paths.input_path(closed / "data", for_others=True)
    assert host_paths.input_path(closed / "data", for_others=False) == closed / "data"


def test_input_that_only_its_owner_reads_is_refused_with_the_command(shared: Path) -> None:
    data = shared / "data"
    data.touch(mode=0o600)
    with pytest.raises(HostPathError, match=rf"chmod o\+r {data}"):
        host_paths.input_path(data, for_others=True)


def test_tmp_is_refused_for_pods_that_have_their_own() -> None:
    with pytest.raises(HostPathError, match="each pod has a /tmp of its own"):
        host_paths.require_readable(Path("/tmp"), "the input")


def test_private_working_directory_is_refused_and_sync_is_the_next_step(shared: Path) -> None:
    closed = shared / "closed"
    closed.mkdir(mode=0o700)
    here = HostEnvironment(workdir=closed)
    with pytest.raises(HostPathError, match="--sync runs the job in a copy"):
        here.prepare(for_others=True, say=silent)


def test_a_working_directory_that_pods_cannot_write_is_named_once_before_the_run(
    shared: Path,
) -> None:
    module = import_module("hekla.cli.run")
    private = shared / "mine"
    private.mkdir(mode=0o755)
    open_ = shared / "open"
    open_.mkdir()
    open_.chmod(0o1777)

    def said(**given: Any) -> str:
        return str(module._unwritable_note(HostEnvironment(**given), for_others=True))

    note = said(workdir=private)
    assert f"the command cannot write to {private}" in note
    assert "use --output DIR" in note
    assert said(workdir=open_) == ""
    assert said(workdir=private, outputs=[open_]) == ""
    assert said(workdir=private, sync=True) == ""
    assert module._unwritable_note(HostEnvironment(workdir=private), for_others=False) == ""


def test_cache_that_others_may_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = host_paths.cache_directory(for_others=False)
    assert cache == tmp_path / "hekla"
    cache.chmod(0o777)
    with pytest.raises(HostPathError, match="chmod go-w"):
        host_paths.cache_directory(for_others=False)


def test_contents_of_a_directory_are_counted_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert str(contents(tmp_path)) == "0 files, 0 B"
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a").write_bytes(b"x" * 2048)
    assert str(contents(tmp_path)) == "1 file, 2.0 KiB"
    (tmp_path / "b").touch()
    monkeypatch.setattr(host_paths, "MAX_COUNTED", 1)
    assert str(contents(tmp_path)).startswith("more than 1 file,")


def test_paths_of_this_machine_are_refused_for_other_machines_and_images() -> None:
    with pytest.raises(HostPathError, match=r"would run on https://far:6443 of .*build an image"):
        refuse_elsewhere(ClusterConfig("https://far:6443", source="prod.yaml"), "host", "--sync")
    with pytest.raises(HostPathError, match=r"with image 'python:3' put the files into the image"):
        refuse_elsewhere(ClusterConfig("https://127.0.0.1:1"), "python:3", "--sync")


def test_environments_and_snapshots_of_unfinished_jobs_are_in_use() -> None:
    def job(key: str, phase: str) -> Object:
        marks = {"hekla.io/environment": f"e-{key}", "hekla.io/snapshot": f"s-{key}"}
        made = Job(key, [Task("worker", annotations=marks), Task("other")]).manifest()
        return {**made, "status": {"state": {"phase": phase}}}

    jobs = [job("a", "Pending"), job("b", "Completed"), job("c", "Aborted")]
    assert keys_in_use(jobs) == {"e-a", "s-a", "e-c", "s-c"}


def test_caches_of_a_clean_up_are_those_that_exist(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    assert tmp_path / "hekla" not in host_paths.cache_directories(environ)
    made = host_paths.cache_directory(for_others=False, environ=environ)
    assert made in host_paths.cache_directories(environ)


def node(**annotations: str) -> dict[str, object]:
    marks = {key.replace("_", "-"): text for key, text in annotations.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "annotations": {f"hekla.io/{k}": v for k, v in marks.items()}},
    }


def test_nodes_tell_what_they_share_with_this_machine(admin: SyncClient) -> None:
    """Both servers; a node without the annotation is none of `hekla up`."""
    empty = HostNodes.of(admin)
    assert (empty.run_as_others, empty.foreign) == (False, False)
    admin.create(NODES, node())
    try:
        kubelet = HostNodes.of(admin)
        assert kubelet.foreign
        with pytest.raises(HostPathError, match=r"no node of .* runs pods as processes"):
            kubelet.refuse_without_processes("--sync")
        for user, want in (("owner", False), ("namespace", True)):
            admin.patch(NODES, "n1", node(pod_user=user))
            agent = HostNodes.of(admin)
            agent.refuse_without_processes("--sync")
            assert (agent.run_as_others, agent.foreign) == (want, False)
            assert agent.limitless == ()
        admin.patch(NODES, "n1", node(memory_limits="none"))
        assert HostNodes.of(admin).limitless == ("n1",)
        labels = {"hekla.io/simulated": "true"}
        simulated = {"metadata": {"annotations": {"hekla.io/pod-user": None}, "labels": labels}}
        admin.patch(NODES, "n1", simulated)
        assert not HostNodes.of(admin).foreign
    finally:
        admin.delete(NODES, "n1")


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["run", *words, "--", "true"])


def test_memory_that_no_node_enforces_is_named_before_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    module = import_module("hekla.cli.run")
    target = ClusterConfig("https://127.0.0.1:1", source="here")

    def notes(memory: str | None, limitless: tuple[str, ...], *, is_up: bool = True) -> str:
        nodes = HostNodes("here", frozenset({"owner"}), foreign=False, limitless=limitless)
        monkeypatch.setattr(HostNodes, "of", lambda _: nodes)
        monkeypatch.setattr(module, "_enforces_limits", lambda: not limitless)
        line = command_line(["true"], memory=memory)
        module._prepare(line, target if is_up else None, {}, {})
        return str(capsys.readouterr().err)

    assert "--memory is a request only on box: a pod beyond it" in notes("1Gi", ("box",))
    assert "--memory is a request only on this machine" in notes("1Gi", ("box",), is_up=False)
    assert notes("1Gi", ()) == notes("1Gi", (), is_up=False) == notes(None, ("box",)) == ""


def test_run_refuses_files_of_this_machine_on_a_cluster_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    far = ClusterConfig("https://far:6443", source="prod.yaml")
    monkeypatch.setattr(cluster_choice, "find_named", lambda _: far)
    done = run("--image", "host", "--sync", "--output", "x")
    assert done.exit_code == 1
    assert "--sync, --output: means files of this machine" in done.output
    done = run("--image", "python:3", "--requirements", "r.txt")
    assert "only for the image 'host'" in done.output


def test_run_without_a_cluster_refuses_a_missing_file_before_it_starts_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_choice, "find_named", lambda _: None)
    for flags in (("--requirements", "/no.txt"), ("--input", "/no"), ("--workdir", "/no")):
        done = run(*flags)
        assert done.exit_code == 1
        assert "/no" in done.output
        assert "temporary" not in done.output


def test_memory_is_request_and_limit_and_a_given_limit_wins() -> None:
    def resources(task: Task) -> object:
        return task.manifest()["template"]["spec"]["containers"][0]["resources"]

    assert resources(Task(memory="1Gi", cpu=2)) == {
        "requests": {"cpu": "2", "memory": "1Gi"},
        "limits": {"memory": "1Gi"},
    }
    given = Task(memory="1Gi", limits={"memory": "2Gi"})
    assert resources(given) == {"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}}
