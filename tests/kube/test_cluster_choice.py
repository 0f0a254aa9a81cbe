"""One rule says which cluster a command means; a step counts if those before it name none."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hekla.kube.cluster_choice import Flags, Surroundings, find, find_named, local_cluster
from hekla.kube.data_dir import LOCK_FILE, PID_FILE, running_pid
from hekla.kube.errors import ConfigError
from hekla.kube.kubeconfig import write_kubeconfig


@dataclass(frozen=True)
class Machine:
    """Kubeconfigs in every place where one may be, each with its own server."""

    root: Path

    @property
    def own(self) -> Path:
        return self.root / "state" / "hekla"

    def around(self, **environ: str) -> Surroundings:
        return Surroundings({"XDG_STATE_HOME": str(self.root / "state"), **environ}, self.root)

    def kubeconfig(self, path: str, server: str, context: str = "hekla") -> Path:
        target = self.root / path
        write_kubeconfig(target, f"https://{server}", None, "secret", context)
        return target

    @contextlib.contextmanager
    def running(self, where: Path, server: str, *, is_up: bool = True) -> Iterator[Path]:
        """A data directory, whose lock is held while its cluster runs."""
        path = self.kubeconfig(str(where.relative_to(self.root) / "kubeconfig"), server)
        (where / PID_FILE).write_text(str(os.getpid()))
        with (where / LOCK_FILE).open("w") as lock:
            if is_up:
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield path


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_flag_comes_before_the_environment_the_local_cluster_and_kubectls_file(
    machine: Machine,
) -> None:
    flag = machine.kubeconfig("flag.yaml", "flag:1")
    exported = machine.kubeconfig("exported.yaml", "exported:1")
    home = machine.kubeconfig(".kube/config", "home:1")
    around = machine.around(KUBECONFIG=str(exported))
    with machine.running(machine.own, "own:1"):
        assert find(Flags(kubeconfig=flag), around).server == "https://flag:1"
        assert find(None, around).server == "https://exported:1"
        assert find(None, machine.around()).server == "https://own:1"
    assert find(None, machine.around()).server == "https://home:1"
    home.unlink()
    with pytest.raises(ConfigError, match="`hekla up -d`"):
        find(None, machine.around())


def test_a_temporary_cluster_is_for_commands_that_no_flag_variable_or_local_cluster_directs(
    machine: Machine,
) -> None:
    """A job that is tried out must not go to the cluster of ~/.kube/config."""
    machine.kubeconfig(".kube/config", "home:1")
    assert find_named(None, machine.around()) is None
    exported = machine.kubeconfig("exported.yaml", "exported:1")
    found = find_named(None, machine.around(KUBECONFIG=str(exported)))
    assert found is not None
    assert found.server == "https://exported:1"


def test_a_data_directory_names_its_running_cluster(machine: Machine) -> None:
    where = machine.root / "data"
    with machine.running(where, "data:1"):
        around = machine.around(KUBECONFIG="/no/such")
        assert find(Flags(data_dir=where), around).server == "https://data:1"
    assert find_named(Flags(data_dir=where), machine.around()) is None
    with pytest.raises(ConfigError, match=f"`hekla up -d --data-dir {where}`"):
        find(Flags(data_dir=where), machine.around())


def test_two_flags_that_name_clusters_are_refused(machine: Machine) -> None:
    with pytest.raises(ConfigError, match="--kubeconfig a and --data-dir b; give one"):
        find(Flags(kubeconfig=Path("a"), data_dir=Path("b")), machine.around())


def test_a_context_is_looked_up_in_the_local_cluster_and_in_kubectls_file(
    machine: Machine,
) -> None:
    machine.kubeconfig(".kube/config", "home:1", "prod")
    with machine.running(machine.own, "own:1"):
        assert find(Flags(context="prod"), machine.around()).server == "https://home:1"
        assert find(Flags(context="hekla"), machine.around()).server == "https://own:1"
        with pytest.raises(ConfigError, match="no context 'dev'; there are: prod"):
            find(Flags(context="dev"), machine.around())


def test_the_cluster_of_hekla_up_that_is_down_is_named_if_no_other_is_configured(
    machine: Machine,
) -> None:
    with machine.running(machine.own, "own:1"):
        pass
    with pytest.raises(ConfigError, match=f"the cluster in {machine.own} is down; start it with"):
        find(around=machine.around())
    machine.kubeconfig(".kube/config", "home:1", "prod")
    assert find(around=machine.around()).server == "https://home:1"


def test_an_unknown_context_names_those_of_the_running_cluster(machine: Machine) -> None:
    with (
        machine.running(machine.own, "own:1"),
        pytest.raises(ConfigError, match="no context 'dev'; there are: hekla"),
    ):
        find(Flags(context="dev"), machine.around())


def test_a_context_with_the_variable_set_is_one_of_its_files(machine: Machine) -> None:
    exported = machine.kubeconfig("exported.yaml", "exported:1", "stage")
    around = machine.around(KUBECONFIG=str(exported))
    with machine.running(machine.own, "own:1"):
        assert find(Flags(context="stage"), around).server == "https://exported:1"
        with pytest.raises(ConfigError, match="no context 'hekla'"):
            find(Flags(context="hekla"), around)


def test_the_kubeconfig_of_a_local_cluster_that_is_down_says_how_to_start_it(
    machine: Machine,
) -> None:
    where = machine.root / "my data"
    with machine.running(where, "127.0.0.1:1", is_up=False) as path:
        with pytest.raises(ConfigError, match=f"is down; start it.*--data-dir '{where}'"):
            find(None, machine.around(KUBECONFIG=str(path)))
        with pytest.raises(ConfigError, match="is down"):
            find(Flags(kubeconfig=path), machine.around())
    with machine.running(where, "127.0.0.1:1") as path:
        assert find(Flags(kubeconfig=path), machine.around()).server == "https://127.0.0.1:1"


def test_a_component_waits_for_a_local_cluster_that_is_down(machine: Machine) -> None:
    with machine.running(machine.root / "data", "127.0.0.1:1", is_up=False) as path:
        for flags, around in (
            (Flags(kubeconfig=path), machine.around()),
            (Flags(), machine.around(KUBECONFIG=str(path))),
        ):
            found = find(flags, around, may_be_down=True)
            assert found.server == "https://127.0.0.1:1"


def test_two_commands_that_look_for_a_cluster_do_not_find_each_other(machine: Machine) -> None:
    where = machine.root / "data"
    with machine.running(where, "127.0.0.1:1", is_up=False), (where / LOCK_FILE).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)  # as the other command does
        assert running_pid(where) is None


def test_the_default_data_directory_is_started_without_a_flag(machine: Machine) -> None:
    with machine.running(machine.own, "127.0.0.1:1", is_up=False) as path:
        with pytest.raises(ConfigError, match=r"with `hekla up -d`$"):
            find(None, machine.around(KUBECONFIG=str(path)))
        with pytest.raises(ConfigError, match=r"with `hekla up -d`$"):
            local_cluster(machine.own, machine.around())


def test_a_remote_server_is_not_taken_for_a_local_cluster(machine: Machine) -> None:
    with machine.running(machine.root / "data", "far.example:1", is_up=False) as path:
        assert find(Flags(kubeconfig=path), machine.around()).server == "https://far.example:1"
