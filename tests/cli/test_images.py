"""`hekla image`: the store of a data directory, from the command line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hekla.cli.main import main
from hekla.images.platforms import this_machine
from hekla.images.store import ImageStore
from hekla.images.tree import remove_tree
from hekla.local import IMAGES_DIRECTORY
from tests.images import sifs
from tests.images.builders import (
    BuiltImage,
    docker_archive,
    file,
    image,
    sha256,
    tar,
    write_layout,
)
from tests.images.conftest import real, skopeo  # noqa: F401  fixtures
from tests.images.registry import RealRegistry


@pytest.fixture
def where(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "data"
    if (tmp_path / "data").exists():
        remove_tree(tmp_path / "data")


@pytest.fixture
def built() -> BuiltImage:
    return image(tar(file("a", b"a")), architecture=this_machine().architecture)


def hekla(where: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["image", *words, "--data-dir", str(where)])


def test_loaded_images_are_listed_and_removed(
    where: Path, tmp_path: Path, built: BuiltImage
) -> None:
    archive = tmp_path / "app.tar"
    archive.write_bytes(docker_archive(built, ["docker.io/library/app:1"]))
    assert hekla(where, "load", str(archive), "--name", "other:2").output.splitlines() == [
        "loaded docker.io/library/app:1",
        "loaded docker.io/library/other:2",
    ]
    listed = hekla(where, "list").output
    assert "docker.io/library/app:1" in listed
    assert "sha256:" in listed
    assert hekla(where, "prune").output.startswith("deleted 0 images")
    for name in ("app:1", "other:2"):
        assert hekla(where, "rm", name).output == f"removed {name}\n"
    assert len(hekla(where, "list").output.splitlines()) == 1
    missing = hekla(where, "rm", "app:1")
    assert missing.exit_code == 1
    assert "there is no image" in missing.output


def test_layout_is_loaded_and_an_image_in_use_stays(
    where: Path, tmp_path: Path, built: BuiltImage
) -> None:
    layout = write_layout(tmp_path / "layout", {"app": built})
    assert hekla(where, "load", f"oci:{layout}:app", "--name", "app:1").exit_code == 0
    store = ImageStore(where / IMAGES_DIRECTORY)
    store.pin(built.digest, "a pod")
    store.close()
    assert " yes" in hekla(where, "list").output
    refused = hekla(where, "rm", "app:1")
    assert refused.exit_code == 1
    assert "is used by a pod" in refused.output


def test_sif_file_is_loaded_listed_and_removed(where: Path, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/a").write_text("a")
    path = tmp_path / "x.sif"
    path.write_bytes(sifs.sif(sifs.partition(sifs.squashfs(tmp_path / "root"))))
    loaded = hekla(where, "load", str(path), "--name", "app:1")
    assert loaded.output.splitlines() == [
        "loaded docker.io/library/app:1",
        f"loaded file://{path}",
    ]
    assert hekla(where, "prune").output.startswith("deleted 0 images")
    listed = hekla(where, "list").output
    assert "docker.io/library/app:1" in listed
    assert f"file://{path}" in listed
    assert len(listed.splitlines()) == 3
    for name in ("app:1", f"file://{path}"):
        assert hekla(where, "rm", name).output == f"removed {name}\n"
    assert len(hekla(where, "list").output.splitlines()) == 1
    path.write_bytes(path.read_bytes()[:5000])
    assert "is damaged or cut off" in hekla(where, "load", str(path)).output


def test_images_are_pulled_by_oras_and_from_podman(
    where: Path,
    tmp_path: Path,
    real: RealRegistry,  # noqa: F811
    skopeo: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = tmp_path / "storage.conf"
    settings.write_text(
        f'[storage]\ndriver="vfs"\nrunroot="{tmp_path}/run"\ngraphroot="{tmp_path}/graph"\n'
    )
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(settings))
    monkeypatch.setenv("PATH", f"{Path(skopeo).parent}:{os.environ['PATH']}")
    (tmp_path / "root").mkdir()
    data = sifs.sif(sifs.partition(sifs.squashfs(tmp_path / "root")))
    name = f"oras://{real.push('app:1', sifs.artifact(data))}"
    pulled = hekla(where, "pull", name)
    assert pulled.exit_code == 0, pulled.output
    assert f"{name}\t{sha256(data)}" in pulled.output
    assert name in hekla(where, "list").output
    assert hekla(where, "rm", name).output == f"removed {name}\n"
    assert len(hekla(where, "list").output.splitlines()) == 1
    missing = hekla(where, "pull", "containers-storage:no-such-image-here:1")
    assert missing.exit_code == 1
    assert "podman images" in missing.output


def test_errors_name_the_next_step(where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "for an image of a registry use pull" in hekla(where, "load", "ubuntu").output
    assert "not a valid name" in hekla(where, "pull", "Not/A/Name").output
    monkeypatch.setenv("PATH", "/nowhere")
    assert "install the package skopeo" in hekla(where, "pull", "ubuntu").output


def test_size_of_the_store_is_a_quantity(tmp_path: Path) -> None:
    words = ["up", "--data-dir", str(tmp_path), "--image-store-size"]
    for wrong in ("much", "0", "-1"):
        refused = CliRunner().invoke(main, [*words, wrong])
        assert refused.exit_code == 2
