"""Fields of a pod and files of its volumes that try to lead the agent out of the pod."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hekla.kube.resources import CONFIGMAPS
from hekla.nodeagent import processes, sandbox
from hekla.nodeagent.environment import Sources
from hekla.nodeagent.probe_handlers import _request
from hekla.nodeagent.volumes import VolumeError, Volumes
from hekla.units.objects import Object
from tests.nodeagent.conftest import Machine
from tests.security.test_pod_isolation import output

CLAIM = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]


def volumes(tmp_path: Path, **volume: Object) -> Volumes:
    pod = {
        "metadata": {"name": "p", "namespace": "ml", "uid": "u"},
        "spec": {"containers": [], "volumes": [{"name": "v", **volume}]},
    }
    node = tmp_path / "data" / "node"
    sources = Sources({"m": {"k": "text"}})
    return Volumes(pod, node / "volumes", node / "claims", sources, off_limits=tmp_path / "data")


@pytest.mark.parametrize("name", ["../../pki", "..", "a/b", "/etc", "a\nb", "", "a..b", "a\tb"])
def test_claim_name_is_one_directory(tmp_path: Path, name: str) -> None:
    made = volumes(tmp_path, persistentVolumeClaim={"claimName": name})
    with pytest.raises(VolumeError, match="claimName"):
        made.make(node={}, pod_ip="")


def test_host_path_into_the_data_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data" / "pki").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "data")
    for path in (tmp_path / "data", tmp_path / "data" / "pki", tmp_path / "link" / "pki"):
        with pytest.raises(VolumeError, match="data directory of the cluster"):
            volumes(tmp_path, hostPath={"path": str(path)}).make(node={}, pod_ip="")


def test_link_in_a_volume_of_files_does_not_redirect_the_agent(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "target").write_text("safe")
    where = tmp_path / "data" / "node" / "volumes" / "v"
    where.mkdir(parents=True)
    (where / "sub").symlink_to(outside)
    (where / ".k.new").symlink_to(outside / "target")
    source = {"name": "m", "items": [{"key": "k", "path": "sub/target"}]}
    with pytest.raises(VolumeError, match="leads out"):
        volumes(tmp_path, configMap=source).make(node={}, pod_ip="")
    volumes(tmp_path, configMap={"name": "m"}).make(node={}, pod_ip="")
    assert (outside / "target").read_text() == "safe"
    assert (where / "k").read_text() == "text"


def test_probe_fields_cannot_add_lines_to_the_request() -> None:
    path = "/x HTTP/1.1\r\nHost: evil\r\n\r\nDELETE /y"
    request = _request({"path": path}, "10.0.0.1").decode()
    assert request.count("\r\n\r\n") == 1
    assert "Host: evil" not in request.split("\r\n")
    for name, value in (("A", "b\r\nX: y"), ("A\r\nX", "y"), ("A: b", "c"), ("", "x")):
        with pytest.raises(ValueError, match="invalid"):
            _request({"httpHeaders": [{"name": name, "value": value}]}, "10.0.0.1")


@pytest.mark.parametrize("link", ["/etc", "../../../../../../etc", "up/../../../../../../etc"])
async def test_sub_path_does_not_follow_a_link_out_of_its_volume(
    shared: Machine, link: str
) -> None:
    mount = {"name": "v", "mountPath": "/data"}
    plant = f"mkdir -p /data/up; ln -s {link} /data/evil; ln -s up /data/fine"
    await output(shared, plant, "plant", container={"volumeMounts": [mount]}, volumes=CLAIM)
    evil = {"volumeMounts": [{**mount, "subPath": "evil"}]}
    await shared.run_pod("evil", "cat", "/data/hostname", container=evil, volumes=CLAIM)
    pod = await shared.ended("evil")
    assert pod["status"]["phase"] == "Failed"
    assert "leads out of its directory" in await shared.logs("evil")
    fine = {"volumeMounts": [{**mount, "subPath": "fine/new"}]}
    await output(shared, "touch /data/f", "fine", container=fine, volumes=CLAIM)
    made = shared.directory / "claims" / "default" / "data" / "up" / "new" / "f"
    assert made.exists()


async def test_mount_path_through_a_link_in_a_volume_creates_nothing_on_the_host(
    shared: Machine, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    mount = {"name": "v", "mountPath": "/data"}
    plant = f"ln -s {outside} /data/evil"
    await output(shared, plant, "plant", container={"volumeMounts": [mount]}, volumes=CLAIM)
    nested = {"volumeMounts": [mount, {"name": "e", "mountPath": "/data/evil/new"}]}
    spec = [*CLAIM, {"name": "e", "emptyDir": {}}]
    await shared.run_pod("evil", "true", container=nested, volumes=spec)
    await shared.ended("evil")
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize(
    "path", ["/tmp/x\nro\t/etc\t/tmp/y", "/tmp/x\t/y", "relative", "/tmp/../etc", "/tmp/\x00x"]
)
async def test_mount_path_that_is_no_plain_path_is_not_mounted(shared: Machine, path: str) -> None:
    await shared.client.create(
        CONFIGMAPS, {"metadata": {"name": "m", "namespace": "default"}, "data": {"f": "map"}}
    )
    mounts = {"volumeMounts": [{"name": "m", "mountPath": path}]}
    source = [{"name": "m", "configMap": {"name": "m"}}]
    await shared.run_pod("p", "true", container=mounts, volumes=source)
    pod = await shared.until("p", lambda p: "mountPath" in str(p["status"]))
    waiting = pod["status"]["containerStatuses"][0]["state"]["waiting"]
    assert waiting["reason"] == "CreateContainerConfigError"


async def test_files_of_a_config_map_cannot_be_replaced_by_links(shared: Machine) -> None:
    await shared.client.create(
        CONFIGMAPS, {"metadata": {"name": "m", "namespace": "default"}, "data": {"f": "map"}}
    )
    text = await output(
        shared,
        "ln -s /etc/passwd /m/.f.new || echo refused",
        container={"volumeMounts": [{"name": "m", "mountPath": "/m"}]},
        volumes=[{"name": "m", "configMap": {"name": "m"}}],
    )
    assert text.endswith("refused\n")


def test_process_in_another_namespace_cannot_pose_as_a_container_of_the_agent() -> None:
    if os.geteuid() != 0 or sandbox.isolation_support().isolation != "root":
        pytest.skip("needs root with PID namespaces")
    code = "import os; os.write(1, b'.'); os.read(0, 1)"
    line = ["unshare", "--pid", "--fork", sys.executable, "-c", code]
    for words, want in ((line, None), (line[3:], "itself")):
        child = subprocess.Popen(
            words,
            env={"PATH": os.environ["PATH"], "HEKLA_TEST_MARK": "x"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with child:
            assert child.stdout is not None
            child.stdout.read(1)
            found = processes.find("HEKLA_TEST_MARK", "x")
            # `unshare` itself is on the host, and started by us.
            expected = child.pid if want or "unshare" in words[0] else None
            assert (found.pid if found else None) == expected
