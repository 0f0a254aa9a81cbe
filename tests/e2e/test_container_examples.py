"""examples/containers on the embedded cluster, with images that are built on the spot."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools import debian
from tools.kube.processes import free_port

from hekla.cli import images
from hekla.images.platforms import this_machine
from hekla.kube.resources import JOBS, PODS
from hekla.kube.sync_client import SyncClient
from hekla.nodeagent import sandbox
from tests.e2e import stories
from tests.images import sifs
from tests.images.builders import directory, docker_archive, file, image, symlink, tar
from tests.images.registry import real_registry

EXAMPLES = Path(__file__).parents[2] / "examples" / "containers"
APPLETS = ("sh", "echo", "mv", "sleep", "httpd", "wget")


@pytest.fixture(scope="module")
def busybox() -> bytes:
    try:
        return debian.static_busybox().read_bytes()
    except debian.Missing as error:
        pytest.skip(str(error))


@pytest.fixture
def skopeo(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node agent finds skopeo; before `client`, which starts the agent."""
    try:
        program = debian.program("skopeo")
    except debian.Missing as error:
        pytest.skip(str(error))
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def client(data_dir: Path) -> Iterator[SyncClient]:
    if not sandbox.isolation_support().namespaces:
        pytest.skip(f"needs namespaces: {sandbox.isolation_support().reason}")
    bridge = os.geteuid() == 0 and shutil.which("ip") is not None
    with stories.cluster(data_dir, "--pod-network", "bridge" if bridge else "host") as client:
        yield client


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that everybody may enter, as the examples say of the SIF file."""
    if not os.access("/srv", os.W_OK):
        pytest.skip("needs to write to /srv: a directory that is open to everybody")
    where = Path("/srv") / f"hekla-example-{os.getpid()}"
    where.mkdir()
    where.chmod(0o755)
    yield where
    shutil.rmtree(where)


def is_completed(jobs: list[Any]) -> bool:
    states = [(job.get("status") or {}).get("state") or {} for job in jobs]
    return [state.get("phase") for state in states] == ["Completed"]


def logs(client: SyncClient, pod: str, container: str = "main") -> str:
    with client.logs(pod, namespace="default", container=container) as chunks:
        return b"".join(chunks).decode()


def test_workers_from_an_image_of_a_registry_add_up_their_gradients(
    skopeo: None, client: SyncClient, busybox: bytes, tmp_path: Path
) -> None:
    """The image is built as the Containerfile says, from the busybox of this machine."""
    script = (EXAMPLES / "ddp" / "train.sh").read_bytes()
    built = image(
        tar(
            *(directory(name) for name in ("bin", "etc")),
            file("bin/busybox", busybox, mode=0o755),
            *(symlink(f"bin/{name}", "busybox") for name in ("sh", "seq", "nc", "sleep")),
            file("train.sh", script, mode=0o755),
        ),
        architecture=this_machine().architecture,
        config={"Entrypoint": ["/train.sh"], "Env": ["PATH=/bin"]},
    )
    with real_registry(tmp_path) as registry:
        registry.push("ddp:1", built)
        stories.submit(client, EXAMPLES / "ddp.yaml", {"127.0.0.1:5000": registry.address})
        stories.seen(client, JOBS, is_completed)
    pods = ("master-0", "worker-0", "worker-1")
    told = [logs(client, f"ddp-{pod}") for pod in pods]
    assert told == [f"rank {rank} of 3: the sum of all gradients is 60\n" for rank in range(3)]


def test_sif_job_runs_the_runscript_and_a_command(
    client: SyncClient, busybox: bytes, public: Path, tmp_path: Path
) -> None:
    root = sifs.write_root(
        tmp_path / "root",
        busybox,
        runscript='echo "$GREETING from the runscript: $*"',
        environment="export GREETING=hello\n",
    )
    path = public / "hello.sif"
    path.write_bytes(sifs.sif(sifs.partition(sifs.squashfs(root))))
    path.chmod(0o644)
    stories.submit(client, EXAMPLES / "sif-job.yaml", {"/srv/images/hello.sif": str(path)})
    stories.seen(client, JOBS, is_completed)
    assert logs(client, "sif-job-runscript-0") == "hello from the runscript: one two\n"
    assert logs(client, "sif-job-command-0") == "hello everybody from hello.sif\n"


def test_containers_and_sidecar_share_volume_and_network(
    client: SyncClient, busybox: bytes, data_dir: Path, tmp_path: Path
) -> None:
    built = image(
        tar(
            directory("bin"),
            file("bin/busybox", busybox, mode=0o755),
            *(symlink(f"bin/{name}", "busybox") for name in APPLETS),
        ),
        architecture=this_machine().architecture,
    )
    archive = tmp_path / "busybox.tar"
    archive.write_bytes(docker_archive(built, ["busybox:1.36"]))
    images.load(data_dir, str(archive), [])
    text = (EXAMPLES / "pod-with-sidecar.yaml").read_text().replace("8086", str(free_port()))
    client.create(PODS, yaml.safe_load(text))
    stories.seen(
        client, PODS, lambda pods: [pod["status"].get("phase") for pod in pods] == ["Succeeded"]
    )
    assert logs(client, "pod-with-sidecar", "writer") == "written\n"
    assert logs(client, "pod-with-sidecar", "reader") == "42\n"
    pod = client.get(PODS, "pod-with-sidecar", namespace="default")
    (sidecar,) = pod["status"]["initContainerStatuses"]
    assert sidecar["restartCount"] == 0
    assert sidecar["imageID"].startswith("docker.io/library/busybox@sha256:")
