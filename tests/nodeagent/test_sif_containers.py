"""Pods that run SIF images, as users of Apptainer expect it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hekla.images.errors import ImageNotFound
from hekla.images.reference import SifFile
from hekla.images.sif_files import load_sif
from hekla.images.store import ImageStore
from hekla.nodeagent.host_files import open_for_pods
from hekla.nodeagent.image_config import DEFAULT_PATH
from hekla.nodeagent.security_context import PodUser
from tests.images import sifs
from tests.images.builders import sha256
from tests.images.registry import RealRegistry
from tests.nodeagent.conftest import Machine, state
from tests.nodeagent.test_image_containers import (
    WAYS,
    busybox,  # noqa: F401  fixtures
    image_store,  # noqa: F401
    restart,
    run,
    waiting,
)

ENVIRONMENT = """
set -- changed arguments
export COLOUR=blue
export OWN=of-the-image
export PATH="/opt/tool/bin:$PATH"
"""
SHOW = "echo $COLOUR $OWN $PATH $APPTAINER_NAME"
NO_SKOPEO = "no-such-skopeo"


@pytest.fixture
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory that everybody may enter, and that pods see: those of pytest are private."""
    if not os.access("/srv", os.W_OK):
        pytest.skip("needs to write to /srv: a directory that is open to everybody")
    where = Path("/srv") / f"hekla-sif-{os.getpid()}"
    where.mkdir(mode=0o755)
    where.chmod(0o755)
    yield where
    for path in where.iterdir():
        path.unlink()
    where.rmdir()


def write_sif(path: Path, root: Path) -> Path:
    path.write_bytes(sifs.sif(sifs.partition(sifs.squashfs(root))))
    path.chmod(0o644)
    return path


def content(path: Path) -> bytes:
    return path.read_bytes()


@pytest.fixture
def app(public: Path, tmp_path: Path, busybox: bytes) -> Path:  # noqa: F811
    root = sifs.write_root(tmp_path / "root", busybox, environment=ENVIRONMENT)
    return write_sif(public / "app.sif", root)


@pytest.mark.parametrize("way", WAYS)
async def test_runscript_environment_and_command_are_apptainers(
    machine: Machine,
    image_store: ImageStore,  # noqa: F811
    app: Path,
    isolation: None,
    way: tuple[PodUser, str],
) -> None:
    await restart(machine, image_store, NO_SKOPEO, *way)  # type: ignore[arg-type]
    image = f"file://{app}"
    pod = await run(machine, "runscript", image)
    assert await machine.logs("runscript") == "run\n"
    assert state(pod)["imageID"].startswith(f"{image}@sha256:")
    await run(machine, "arguments", image, container={"args": ["a b", "c"]})
    assert await machine.logs("arguments") == "run a b c\n"
    own = {"env": [{"name": "OWN", "value": "of the $pod"}, {"name": "N", "value": "$(OWN)!"}]}
    await run(machine, "command", image, "sh", "-c", f"{SHOW}; echo $N; exit 3", container=own)
    assert (await machine.logs("command")).splitlines() == [
        f"blue of the $pod /opt/tool/bin:{DEFAULT_PATH} app.sif",
        "of the $pod!",
    ]
    found = state(await machine.ended("command"))["state"]["terminated"]
    assert found["exitCode"] == 3


async def test_changed_file_is_unpacked_again(
    machine: Machine,
    image_store: ImageStore,  # noqa: F811
    app: Path,
    tmp_path: Path,
    isolation: None,
) -> None:
    await restart(machine, image_store, NO_SKOPEO)
    await run(machine, "first", f"file://{app}")
    (tmp_path / "root/.singularity.d/runscript").write_text("#!/bin/sh\necho changed\n")
    write_sif(app, tmp_path / "root")
    await run(machine, "second", f"file://{app}")
    assert await machine.logs("second") == "changed\n"
    assert len(image_store.images()) == 2


async def test_gang_unpacks_a_file_once_and_pins_it(
    machine: Machine,
    image_store: ImageStore,  # noqa: F811
    app: Path,
    isolation: None,
) -> None:
    await restart(machine, image_store, NO_SKOPEO)
    for number in range(4):
        await machine.run_pod(f"p{number}", "sleep", "600", container={"image": f"file://{app}"})
    for number in range(4):
        await machine.running(f"p{number}")
    ((image, *_),) = image_store.images()
    assert len(image_store.pins()) == 4
    assert not image_store.collect(0).images
    assert image.pullable


async def test_exec_has_the_environment_of_the_image(
    machine: Machine,
    image_store: ImageStore,  # noqa: F811
    app: Path,
    isolation: None,
) -> None:
    await restart(machine, image_store, NO_SKOPEO)
    probe = {"exec": {"command": ["sh", "-c", 'test "$COLOUR" = blue && touch /tmp/seen']}}
    await run(
        machine,
        "p",
        f"file://{app}",
        "sh",
        "-c",
        "while ! test -e /tmp/seen; do sleep 0.05; done",
        container={"readinessProbe": {**probe, "periodSeconds": 1}},
    )


async def test_file_that_tenants_cannot_read_is_no_image_for_them(
    machine: Machine,
    image_store: ImageStore,  # noqa: F811
    app: Path,
    isolation: None,
) -> None:
    """The agent is root and could read it; the pod, a user of its namespace, could not."""
    await restart(machine, image_store, NO_SKOPEO, "namespace", "root")
    await run(machine, "before", f"file://{app}")
    os.chmod(app, 0o600)
    await machine.run_pod("closed", container={"image": f"file://{app}", "command": []})
    pod = await machine.until("closed", lambda p: waiting(p).get("reason") == "ErrImagePull")
    assert "not readable for everybody" in waiting(pod)["message"]
    os.chmod(app, 0o644)
    os.chmod(app.parent, 0o750)
    await machine.run_pod("inside", container={"image": f"file://{app}", "command": []})
    pod = await machine.until("inside", lambda p: waiting(p).get("reason") == "ErrImagePull")
    assert f"the directory {app.parent} is not open to everybody" in waiting(pod)["message"]
    link = Path("/srv") / f"hekla-link-{os.getpid()}.sif"
    link.symlink_to(app)
    try:
        with pytest.raises(ImageNotFound, match="not open to everybody"):
            open_for_pods(str(link), is_owner=False, off_limits=machine.directory)
    finally:
        link.unlink()
    os.chmod(app.parent, 0o755)
    os.close(open_for_pods(str(app), is_owner=False, off_limits=machine.directory))


def test_files_in_directories_that_pods_do_not_see_are_no_images(app: Path) -> None:
    """Everybody on the machine may read /tmp, but each pod has its own."""
    for where in ("/tmp", "/var/tmp"):
        path = Path(where) / f"hekla-{os.getpid()}.sif"
        path.write_bytes(b"x")
        path.chmod(0o644)
        try:
            with pytest.raises(ImageNotFound, match=f"is in {where}, of which pods see their own"):
                open_for_pods(str(path), is_owner=False, off_limits=Path("/nowhere"))
            os.close(open_for_pods(str(path), is_owner=True, off_limits=Path("/nowhere")))
        finally:
            path.unlink()
    os.close(open_for_pods(str(app), is_owner=False, off_limits=Path("/nowhere")))


async def test_loaded_file_runs_under_its_name(
    machine: Machine,
    image_store: ImageStore,  # noqa: F811
    app: Path,
    isolation: None,
) -> None:
    """So an administrator gives tenants an image without giving them the file."""
    os.chmod(app, 0o600)
    descriptor = os.open(app, os.O_RDONLY)
    name = "docker.io/library/app:1"
    await load_sif(image_store, descriptor, SifFile(str(app)), names=[name], pullable=False)
    os.close(descriptor)
    os.unlink(app)
    await restart(machine, image_store, NO_SKOPEO)
    await run(machine, "p", "app:1", container={"args": ["x"]})
    assert await machine.logs("p") == "run x\n"


def test_files_of_the_cluster_and_devices_are_no_images(tmp_path: Path) -> None:
    secret = tmp_path / "data/kubeconfig"
    secret.parent.mkdir()
    secret.write_text("secret")
    (tmp_path / "link").symlink_to(secret)
    for path in (secret, tmp_path / "link"):
        with pytest.raises(ImageNotFound, match="data directory of the cluster"):
            open_for_pods(str(path), is_owner=True, off_limits=tmp_path / "data")
    for is_owner in (True, False):
        for name in ("/dev/null", "/usr") if is_owner else ("/usr",):
            with pytest.raises(ImageNotFound, match="not a regular file"):
                open_for_pods(name, is_owner=is_owner, off_limits=tmp_path)
        with pytest.raises(ImageNotFound, match="No such file"):
            open_for_pods("/no/such/file.sif", is_owner=is_owner, off_limits=tmp_path)
        loop = tmp_path / f"loop-{is_owner}"
        loop.symlink_to(loop)
        with pytest.raises(ImageNotFound):
            open_for_pods(str(loop), is_owner=is_owner, off_limits=tmp_path / "data")


async def test_file_that_is_no_sif_waits_with_the_reason(
    machine: Machine,
    image_store: ImageStore,  # noqa: F811
    tmp_path: Path,
    isolation: None,
) -> None:
    await restart(machine, image_store, NO_SKOPEO)
    (tmp_path / "text.sif").write_text("text")
    cases = {
        f"file://{tmp_path}/text.sif": ("ErrImagePull", "is not a SIF file"),
        f"file://{tmp_path}/missing.sif": ("ErrImagePull", "No such file"),
        f"{tmp_path}/text.sif": ("InvalidImageName", "for a SIF file write file://"),
        "library://example/x:1": ("InvalidImageName", "apptainer pull"),
    }
    for number, (image, (reason, text)) in enumerate(cases.items()):
        await machine.run_pod(f"p{number}", "true", container={"image": image})
        pod = await machine.until(
            f"p{number}",
            lambda p: (
                bool(waiting(p).get("message")) and waiting(p)["reason"] != "ContainerCreating"
            ),
        )
        assert waiting(pod)["reason"] == reason
        assert text in waiting(pod)["message"]


async def test_sif_of_a_registry_runs(
    machine: Machine,
    image_store: ImageStore,  # noqa: F811
    real: RealRegistry,
    skopeo: str,
    app: Path,
    isolation: None,
) -> None:
    await restart(machine, image_store, skopeo)
    built = sifs.artifact(content(app))
    image = f"oras://{real.push('sif:1', built)}"
    pod = await run(machine, "p", image, container={"args": ["x"]}, runtimeClassName="sif")
    assert await machine.logs("p") == "run x\n"
    assert state(pod)["imageID"] == f"{image.removesuffix(':1')}@{sha256(content(app))}"
    missing = f"{image.removesuffix('sif:1')}none:1"
    await machine.run_pod("none", container={"image": missing, "command": []})
    pod = await machine.until("none", lambda p: waiting(p).get("reason") == "ErrImagePull")
    assert "check the name and the tag" in waiting(pod)["message"]


async def test_image_without_a_shell_or_runscript(
    machine: Machine,
    image_store: ImageStore,  # noqa: F811
    busybox: bytes,  # noqa: F811
    public: Path,
    tmp_path: Path,
    isolation: None,
) -> None:
    await restart(machine, image_store, NO_SKOPEO)
    root = sifs.write_root(tmp_path / "root", busybox, runscript="", applets=("echo",))
    image = f"file://{write_sif(public / 'bare.sif', root)}"
    await run(machine, "p", image, "echo", "bare")
    assert await machine.logs("p") == "bare\n"
    await machine.run_pod("none", container={"image": image, "command": []})
    pod = await machine.until(
        "none", lambda p: waiting(p).get("reason") == "CreateContainerConfigError"
    )
    assert "has no runscript; set command" in waiting(pod)["message"]


async def test_classes_sif_and_oci_want_their_kind_of_image(
    machine: Machine,
    image_store: ImageStore,  # noqa: F811
    app: Path,
    isolation: None,
) -> None:
    await restart(machine, image_store, NO_SKOPEO)
    await run(machine, "right", f"file://{app}", runtimeClassName="sif")
    assert await machine.logs("right") == "run\n"
    for name, image, text in (
        ("oci", f"file://{app}", "runs container images, and not SIF files"),
        ("sif", "ubuntu:24.04", "runs SIF images"),
    ):
        await machine.run_pod(name, "true", container={"image": image}, runtimeClassName=name)
        pod = await machine.until(name, lambda p: bool(waiting(p).get("message")))
        assert waiting(pod)["reason"] == "CreateContainerConfigError"
        assert text in waiting(pod)["message"]
