"""Images of `docker save` and of OCI layouts are loaded without a tool."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.images.archives import open_archive
from hekla.images.catalog import Image
from hekla.images.documents import Platform
from hekla.images.errors import (
    DigestMismatch,
    ImageError,
    ImageNotFound,
    InvalidImage,
    InvalidReference,
    NoSuchPlatform,
    UnsupportedImage,
)
from hekla.images.reference import Archive, parse_source
from hekla.images.store import ImageStore
from hekla.images.transfer import Puller
from tests.images.builders import (
    BuiltImage,
    docker_archive,
    entry,
    file,
    image,
    symlink,
    tar,
    write_layout,
)
from tests.images.stores import files_of

ONE, TWO = tar(file("one", b"1")), tar(file("two", b"2"))
BUILT = image(ONE, TWO, config={"Cmd": ["sh"]})
AMD64 = Platform("amd64", "linux")
NOTHING: dict[str, list[str]] = {"blobs": [], "layers": [], "ingest": [], "locks": []}


async def load(store: ImageStore, source: str, *names: str) -> Image:
    archive = parse_source(source)
    assert isinstance(archive, Archive)
    return await Puller(store, machine=AMD64).load(archive, names)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def check(store: ImageStore, found: Image) -> None:
    top, bottom = store.lower_directories(found)
    assert ((bottom / "one").read_bytes(), (top / "two").read_bytes()) == (b"1", b"2")
    assert found.config.cmd == ("sh",)
    assert not found.pullable


async def test_docker_archive_is_loaded_under_its_names(store: ImageStore, tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar", docker_archive(BUILT, ["x:1", "me/y:2"]))
    found = await load(store, f"docker-archive:{path}", "docker.io/library/mine:1")
    check(store, found)
    for name in ("docker.io/library/x:1", "docker.io/me/y:2", "docker.io/library/mine:1"):
        assert store.find(name) == found


async def test_oci_layout_is_loaded_by_name(store: ImageStore, tmp_path: Path) -> None:
    layout = write_layout(tmp_path / "layout", {"v1": BUILT, "v2": image(ONE)})
    check(store, await load(store, f"oci:{layout}:v1"))
    with pytest.raises(InvalidReference, match="add one of these names: v1, v2"):
        await load(store, f"oci:{layout}")
    with pytest.raises(ImageNotFound, match="no image 'v3'"):
        await load(store, f"oci:{layout}:v3")


async def test_oci_archive_is_loaded(store: ImageStore, tmp_path: Path) -> None:
    layout = write_layout(tmp_path / "layout", {"docker.io/library/x:1": BUILT})
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.add(layout, ".")
    found = await load(store, f"oci-archive:{tmp_path / 'x.tar'}")
    check(store, found)
    assert found.digest == BUILT.digest
    assert store.find("docker.io/library/x:1") == found


async def test_archive_of_several_images_needs_a_name(store: ImageStore, tmp_path: Path) -> None:
    table = [
        {"Config": "c1", "RepoTags": ["x:1"], "Layers": ["one.tar", "two.tar"]},
        {"Config": "c2", "RepoTags": ["y:1"], "Layers": ["one.tar"]},
    ]
    data = tar(
        file("manifest.json", json.dumps(table).encode()), file("c1", BUILT.config),
        file("c2", image(ONE).config), file("one.tar", ONE), symlink("two.tar", "real/two.tar"),
        file("real/two.tar", TWO),
    )  # fmt: skip
    path = write(tmp_path / "both.tar", data)
    check(store, await load(store, f"docker-archive:{path}:x:1"))
    with pytest.raises(InvalidReference, match="has 2 images; add one of these names: x:1, y:1"):
        await load(store, f"docker-archive:{path}")


def archive(**changed: bytes | None) -> bytes:
    files: dict[str, bytes | None] = {
        "manifest.json": json.dumps([{"Config": "config", "Layers": ["one", "two"]}]).encode(),
        "config": BUILT.config,
        "one": ONE,
        "two": TWO,
    }
    for name, data in changed.items():
        files[name.replace("_", ".")] = data
    return tar(*(file(name, data) for name, data in files.items() if data is not None))


BROKEN: dict[str, tuple[bytes, type[ImageError], str]] = {
    "no manifest": (archive(manifest_json=None), InvalidImage, "no file 'manifest.json'"),
    "no layer": (archive(two=None), InvalidImage, "no file 'two'"),
    "a damaged manifest": (archive(manifest_json=b"{"), InvalidImage, "cannot be read"),
    "another layer": (archive(two=ONE), DigestMismatch, "configuration has"),
    "a layer too few": (
        archive(manifest_json=b'[{"Config": "config", "Layers": ["one"]}]'),
        InvalidImage,
        "has 1 layers, and its configuration 2",
    ),
    "a path outside": (
        archive(manifest_json=b'[{"Config": "../../etc/passwd", "Layers": []}]'),
        InvalidImage,
        "no file",
    ),
    "an absolute path": (
        archive(manifest_json=b'[{"Config": "/etc/passwd", "Layers": []}]'),
        InvalidImage,
        "no file",
    ),
    "a link outside": (
        tar(entry("manifest.json", tarfile.SYMTYPE, linkname="/etc/passwd")),
        InvalidImage,
        "no file",
    ),
    "a huge manifest": (archive(manifest_json=b" " * (5 << 20)), InvalidImage, "larger than 4 MiB"),
    "another machine": (
        docker_archive(image(ONE, architecture="arm64")),
        NoSuchPlatform,
        "built for linux/arm64",
    ),
    "a compressed archive": (gzip.compress(archive()), UnsupportedImage, "run gunzip"),
    "cut off": (archive()[:2000], InvalidImage, "ends in the middle"),
    "no archive": (b"x" * 2000, InvalidImage, "not a tar archive|checksum"),
}


@pytest.mark.parametrize(("data", "kind", "why"), BROKEN.values(), ids=BROKEN)
async def test_broken_archives_are_refused_and_leave_nothing(
    data: bytes, kind: type[ImageError], why: str, store: ImageStore, tmp_path: Path
) -> None:
    path = write(tmp_path / "x.tar", data)
    with pytest.raises(kind, match=why):
        await load(store, f"docker-archive:{path}")
    assert files_of(store) == NOTHING


def break_blob(layout: Path, built: BuiltImage) -> None:
    (layout / "blobs/sha256" / built.layer_digests[0][7:]).write_bytes(gzip.compress(TWO))


def replace_blob_by_fifo(layout: Path, built: BuiltImage) -> None:
    path = layout / "blobs/sha256" / built.digest[7:]
    path.unlink()
    os.mkfifo(path)


def change_manifest(layout: Path, built: BuiltImage) -> None:
    (layout / "blobs/sha256" / built.digest[7:]).write_bytes(built.manifest + b" ")


def change_annotations(layout: Path, _: BuiltImage) -> None:
    path = layout / "index.json"
    path.write_text(path.read_text().replace('"v1"', "[1]"))


DAMAGES = [break_blob, replace_blob_by_fifo, change_manifest, change_annotations]


@pytest.mark.parametrize("damage", DAMAGES)
async def test_damaged_layouts_are_refused(
    damage: Callable[[Path, BuiltImage], None], store: ImageStore, tmp_path: Path
) -> None:
    layout = write_layout(tmp_path / "layout", {"v1": BUILT})
    damage(layout, BUILT)
    with pytest.raises(InvalidImage):
        await load(store, f"oci:{layout}")
    assert files_of(store) == NOTHING


async def test_wrong_kinds_of_paths_are_named(store: ImageStore, tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar", docker_archive(BUILT))
    with pytest.raises(InvalidImage, match="write oci-archive:"):
        await load(store, f"oci:{path}")
    with pytest.raises(InvalidImage, match="write oci:"):
        await load(store, f"oci-archive:{tmp_path}")
    with pytest.raises(ImageNotFound, match="No such file"):
        await load(store, f"oci-archive:{tmp_path / 'none'}")


@given(st.binary(max_size=3000), st.sampled_from(["docker-archive", "oci-archive"]))
def test_any_file_is_an_archive_or_refused(data: bytes, kind: str) -> None:
    descriptor = os.memfd_create("archive")
    with os.fdopen(descriptor, "wb") as out:
        out.write(io.BytesIO(data).getvalue())
        out.flush()
        source = parse_source(f"{kind}:/proc/self/fd/{descriptor}")
        assert isinstance(source, Archive)
        with pytest.raises(ImageError), open_archive(source, AMD64):
            pass
