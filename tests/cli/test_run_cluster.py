"""`hekla run` uses the cluster that all commands use, and starts one only if none is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from hekla.cli import run as module
from hekla.cli.main import main
from hekla.kube.kubeconfig import ClusterConfig, write_kubeconfig


@pytest.fixture
def targets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Where runs go, instead of going there."""
    seen: list[str] = []

    async def follow(target: ClusterConfig, *_: object, **__: object) -> int:
        seen.append(target.server)
        return 0

    async def apart(*_: object, **__: object) -> int:
        seen.append("temporary")
        return 0

    monkeypatch.setattr(module, "_follow", follow)
    monkeypatch.setattr(module, "_run_on_temporary_cluster", apart)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return seen


def kubeconfig(path: Path, server: str) -> Path:
    write_kubeconfig(path, server, None, "secret", "prod")
    return path


def test_the_environment_names_the_cluster_and_it_is_shown(
    targets: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kubeconfig(tmp_path / "far.yaml", "https://far.example:6443")
    monkeypatch.setenv("KUBECONFIG", str(path))
    done = CliRunner().invoke(main, ["run", "--image", "busybox", "--", "date"])
    assert targets == ["https://far.example:6443"], done.output
    assert f"using the cluster https://far.example:6443 of {path}" in done.output


def test_a_flag_names_the_cluster(targets: list[str], tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "flag.yaml", "https://flag.example:6443")
    where = ("--kubeconfig", str(path), "--context", "prod")
    CliRunner().invoke(main, ["run", *where, "--image", "busybox", "--", "date"])
    assert targets == ["https://flag.example:6443"]


def test_without_a_cluster_a_temporary_one_is_started_and_announced(
    targets: list[str], tmp_path: Path
) -> None:
    kubeconfig(tmp_path / ".kube" / "config", "https://home.example:6443")
    done = CliRunner().invoke(main, ["run", "--", "date"])
    assert targets == ["temporary"], done.output
    assert "no cluster is running: starting a temporary one" in done.output
    assert "~/.kube/config is used only if --context or $KUBECONFIG names it" in done.output


def test_a_missing_kubeconfig_is_an_error_and_starts_nothing(
    targets: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/no/such")
    done = CliRunner().invoke(main, ["run", "--", "date"])
    assert (done.exit_code, targets) == (1, [])
    assert "$KUBECONFIG is '/no/such', and no such file exists" in done.output


def test_a_flag_of_the_temporary_cluster_is_refused_if_another_cluster_is_used(
    targets: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kubeconfig(tmp_path / "near.yaml", "https://127.0.0.1:6443")
    monkeypatch.setenv("KUBECONFIG", str(path))
    done = CliRunner().invoke(main, ["run", "--host-images", "--", "date"])
    assert (done.exit_code, targets) == (2, [])
    assert "--host-images is a setting of the temporary cluster" in done.output
    assert "hekla up -d --host-images" in done.output
    monkeypatch.delenv("KUBECONFIG")
    CliRunner().invoke(main, ["run", "--host-images", "--", "date"])
    assert targets == ["temporary"]


def test_flags_of_a_command_are_refused_for_manifests(targets: list[str], tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: a}")
    done = CliRunner().invoke(main, ["run", "--replicas", "1", "--env", "A=b", str(file)])
    assert (done.exit_code, targets) == (2, [])
    assert "--replicas, --env: only for a command after `--`" in done.output


def test_a_command_on_another_machine_needs_an_image(targets: list[str], tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "far.yaml", "https://far.example:6443")
    done = CliRunner().invoke(main, ["run", "--kubeconfig", str(path), "--", "date"])
    assert (done.exit_code, targets) == (2, [])
    assert "--image is needed: the default image 'host' is this machine" in done.output


def test_a_relative_data_directory_is_absolute_in_what_is_printed(
    targets: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["status", "--data-dir", "here"])
    assert f"hekla up --data-dir {tmp_path}/here" in done.output


def test_a_data_directory_that_cannot_be_made_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "data"
    for flags in (["-d"], []):
        done = CliRunner().invoke(main, ["up", "--port", "0", "--data-dir", str(below), *flags])
        assert done.exit_code == 1
        assert done.output == (
            f"Error: {below} cannot be made: Not a directory; use another directory\n"
        )


def test_a_run_beside_a_cluster_that_crashed_says_so_first(
    targets: list[str], tmp_path: Path
) -> None:
    where = tmp_path / "state" / "hekla"
    where.mkdir(parents=True)
    (where / "hekla.pid").write_text("1")
    (where / "lock").touch()
    done = CliRunner().invoke(main, ["run", "--", "date"])
    assert targets == ["temporary"], done.output
    first, second = done.output.splitlines()[:2]
    assert f"the cluster in {where} ended without `hekla down`" in first
    assert "starting a temporary one" in second


def test_detach_needs_a_cluster_that_stays(targets: list[str]) -> None:
    done = CliRunner().invoke(main, ["run", "--detach", "--", "date"])
    assert (done.exit_code, targets) == (2, [])
    assert "--detach needs a cluster that stays, and none is running: `hekla up -d`" in done.output
