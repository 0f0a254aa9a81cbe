"""Images of podman and Docker on this machine: copied by skopeo, or from `podman save`."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest
from tools import debian

from hekla.images.catalog import Image
from hekla.images.errors import ImageNotFound, RegistryUnavailable
from hekla.images.lookup import read_file
from hekla.images.reference import Archive, ArchiveKind, EngineImage, Reference, parse_pull
from hekla.images.store import ImageStore
from hekla.images.transfer import Puller


class Podman:
    """podman with a storage of its own."""

    def __init__(self, program: Path, where: Path) -> None:
        self._program, self._where = program, where

    def run(self, *words: str) -> None:
        done = subprocess.run(
            [str(self._program), *words], cwd=self._where, capture_output=True, text=True
        )
        assert not done.returncode, done.stderr

    def build(self, tag: str, text: str) -> None:
        (self._where / "file").write_text(text)
        lines = "FROM scratch\nCOPY file /file\nENV COLOUR=blue\n"
        (self._where / "Containerfile").write_text(lines + 'CMD ["/file"]\n')
        self.run("build", "--network", "none", "-t", tag, ".")


def _settings(where: Path, program: Path) -> dict[str, str]:
    """Return files of settings, for podman and for skopeo."""
    engine = '[engine]\ncgroup_manager="cgroupfs"\nevents_logger="file"\n'
    parts = program.parents[1] / "podman" / "usr" / "bin"
    if parts.exists():  # unpacked and not installed: it does not find its own parts
        engine += f'runtime="crun"\nconmon_path=["{parts / "conmon"}"]\n'
        engine += (
            f'[network]\nnetwork_backend="cni"\n[engine.runtimes]\ncrun=["{parts / "crun"}"]\n'
        )
    return {
        "storage.conf": '[storage]\ndriver="vfs"\n'
        f'runroot="{where}/run"\ngraphroot="{where}/graph"\n',
        "containers.conf": engine,
        "home/.config/containers/policy.json": json.dumps(
            {"default": [{"type": "insecureAcceptAnything"}]}
        ),
    }


@pytest.fixture
def podman(tmp_path: Path, skopeo: str, monkeypatch: pytest.MonkeyPatch) -> Podman:
    try:
        program = debian.program("podman")
    except debian.Missing as error:
        pytest.skip(str(error))
    where = tmp_path / "podman"
    for name, text in _settings(where, program).items():
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_text(text)
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(where / "storage.conf"))
    monkeypatch.setenv("CONTAINERS_CONF", str(where / "containers.conf"))
    monkeypatch.setenv("HOME", str(where / "home"))
    return Podman(program, where)


def copy(store: ImageStore, skopeo: str, name: str) -> Image:
    source = parse_pull(name)
    assert isinstance(source, EngineImage)
    return asyncio.run(Puller(store, program=skopeo).copy(source))


def test_image_of_podman_build_is_copied(live: ImageStore, podman: Podman, skopeo: str) -> None:
    podman.build("app:1", "first")
    image = copy(live, skopeo, "containers-storage:app:1")
    assert live.find("localhost/app:1") == live.find("docker.io/library/app:1") == image
    assert read_file(live.lower_directories(image), "/file") == b"first"
    assert image.config.cmd == ("/file",)
    assert "COLOUR=blue" in image.config.env
    assert not image.pullable
    podman.build("app:1", "second")
    again = copy(live, skopeo, "containers-storage:localhost/app:1")
    assert read_file(live.lower_directories(again), "/file") == b"second"
    assert live.find("localhost/app:1") == again
    assert list((live.directory / "ingest").iterdir()) == []


def test_image_of_podman_save_is_loaded(
    live: ImageStore, podman: Podman, skopeo: str, tmp_path: Path
) -> None:
    podman.build("app:1", "saved")
    for kind, option in (
        (ArchiveKind.DOCKER_ARCHIVE, "docker-archive"),
        (ArchiveKind.OCI_ARCHIVE, "oci-archive"),
    ):
        path = tmp_path / f"{option}.tar"
        podman.run("save", "--format", option, "-o", str(path), "app:1")
        image = asyncio.run(Puller(live).load(Archive(kind, path)))
        assert live.find("localhost/app:1") == image
        assert read_file(live.lower_directories(image), "/file") == b"saved"


def test_missing_image_and_daemon_are_named(
    live: ImageStore, podman: Podman, skopeo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ImageNotFound, match="podman images"):
        copy(live, skopeo, "containers-storage:none:1")
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/docker.sock")
    with pytest.raises(RegistryUnavailable, match="start Docker"):
        copy(live, skopeo, "docker-daemon:app:1")


def test_names_of_engines() -> None:
    cases = {
        "containers-storage:app": ("containers-storage:localhost/app:latest", 2),
        "containers-storage:localhost/app:1": ("containers-storage:localhost/app:1", 1),
        "containers-storage:quay.io/a/b:1": ("containers-storage:quay.io/a/b:1", 1),
        "docker-daemon:app:1": ("docker-daemon:docker.io/library/app:1", 1),
    }
    for text, (want, names) in cases.items():
        source = parse_pull(text)
        assert isinstance(source, EngineImage)
        assert (str(source), len(source.names)) == (want, names)
    assert isinstance(parse_pull("ubuntu"), Reference)
