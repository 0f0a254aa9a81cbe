"""SIF files: their header, the squashfs in them, and the store."""

from __future__ import annotations

import asyncio
import os
import random
import stat
import struct
import subprocess
from pathlib import Path

import pytest
from tools.kube import gobuild

from hekla.images.errors import (
    DiskFull,
    ImageError,
    InvalidImage,
    InvalidReference,
    NoSuchPlatform,
    UnsupportedImage,
)
from hekla.images.lookup import read_file
from hekla.images.reference import Reference, SifFile, parse_image
from hekla.images.sif_files import find_sif, load_sif
from hekla.images.squashfs import Squashfs
from hekla.images.store import Image, ImageStore
from tests.images import sifs
from tests.images.stores import files_of

SIFTOOL = gobuild.Part(
    "siftool",
    Path(__file__).parents[2] / "tools" / "siftool",
    "github.com/sylabs/sif/v2",
    "github.com/sylabs/sif/v2/cmd/siftool",
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small root file system with files of all kinds."""
    where = tmp_path / "root"
    (where / "bin").mkdir(parents=True)
    (where / "bin/sh").write_bytes(b"\x7fELF shell")
    (where / "bin/sh").chmod(0o755)
    (where / ".singularity.d").mkdir()
    (where / ".singularity.d/runscript").write_text("#!/bin/sh\n")
    draw = random.Random(1)
    (where / "big").write_bytes(draw.randbytes(300_000) + bytes(700_000) + b"the end")
    (where / "empty").write_bytes(b"")
    (where / "link").symlink_to("../../etc/passwd")
    os.link(where / "bin/sh", where / "second")
    os.mkfifo(where / "fifo")
    (where / ".wh.kept").write_text("no whiteout")
    (where / "many").mkdir()
    for number in range(600):  # several blocks of metadata, and fragments
        (where / f"many/{number}-{'x' * (number % 100)}").write_text(f"text {number}")
    (where / "setuid").write_text("x")
    (where / "setuid").chmod(0o4755)
    (where / "closed").mkdir(mode=0o700)
    (where / "closed/inner").write_text("inner")
    return where


def load(store: ImageStore, path: Path, *, pullable: bool = True) -> Image:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return asyncio.run(load_sif(store, descriptor, SifFile(str(path)), pullable=pullable))
    finally:
        os.close(descriptor)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def facts(root: Path) -> dict[str, tuple[object, ...]]:
    """Return what is comparable of each file below a directory."""
    found: dict[str, tuple[object, ...]] = {}
    for where, directories, files in os.walk(root):
        for name in (*directories, *files):
            path = Path(where, name)
            seen = path.lstat()
            if stat.S_ISLNK(seen.st_mode):
                content: object = os.readlink(path)
            else:
                content = path.read_bytes() if stat.S_ISREG(seen.st_mode) else b""
            links = seen.st_nlink if stat.S_ISREG(seen.st_mode) else 1
            found[str(path.relative_to(root))] = seen.st_mode, int(seen.st_mtime), links, content
    return found


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="gzip"),
        pytest.param(("-comp", "xz"), id="xz"),
        pytest.param(("-comp", "zstd"), id="zstd"),
        pytest.param(("-noI", "-noD", "-noF"), id="not compressed"),
        pytest.param(("-no-fragments",), id="without fragments"),
        pytest.param(("-b", "4096"), id="small blocks"),
        pytest.param(("-b", "1M", "-always-use-fragments"), id="large blocks"),
    ],
)
def test_files_are_those_of_mksquashfs(
    store: ImageStore, root: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    data = sifs.sif(sifs.partition(sifs.squashfs(root, *options)))
    image = load(store, write(tmp_path / "x.sif", data))
    (layer,) = store.lower_directories(image)
    assert facts(layer) == facts(root)


def test_sif_of_siftool_is_read(store: ImageStore, root: Path, tmp_path: Path) -> None:
    if why := gobuild.missing([SIFTOOL]):
        pytest.skip(why)
    siftool, path = str(gobuild.ensure(SIFTOOL)), str(tmp_path / "x.sif")
    inner = write(tmp_path / "inner", sifs.squashfs(root))
    note = write(tmp_path / "note", b"{}")
    code = str(int(sifs.this_code()))
    subprocess.run([siftool, "new", path], check=True)
    add = [siftool, "add", "--groupid", "1"]
    subprocess.run([*add, "--datatype", "3", path, str(note)], check=True)
    words = ["--datatype", "4", "--parttype", "2", "--partfs", "1", "--partarch", code]
    subprocess.run([*add, *words, path, str(inner)], check=True)
    image = load(store, Path(path))
    assert facts(store.lower_directories(image)[0]) == facts(root)
    ours = write(tmp_path / "ours.sif", sifs.sif(sifs.partition(inner.read_bytes())))
    listed = subprocess.run([siftool, "list", str(ours)], check=True, capture_output=True)
    assert b"Squashfs/*System" in listed.stdout


def test_store_knows_a_file_until_it_changes(store: ImageStore, root: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "x.sif", sifs.sif(sifs.partition(sifs.squashfs(root))))
    first = load(store, path)
    assert (
        first.digest == "sha256:" + subprocess.check_output(["sha256sum", path]).split()[0].decode()
    )
    copy = write(tmp_path / "copy.sif", path.read_bytes())
    for each, want in ((path, first), (copy, None)):
        descriptor = os.open(each, os.O_RDONLY)
        assert find_sif(store, descriptor, SifFile(str(each))) == want
        os.close(descriptor)
    assert load(store, copy) == first, "the same content is unpacked once"
    (root / "new").write_text("new")
    write(path, sifs.sif(sifs.partition(sifs.squashfs(root))))
    descriptor = os.open(path, os.O_RDONLY)
    assert find_sif(store, descriptor, SifFile(str(path))) is None
    os.close(descriptor)
    second = load(store, path)
    assert second.digest != first.digest
    names = {name.split("@")[0]: image for image, names, _ in store.images() for name in names}
    assert names == {f"file://{path}": second, f"file://{copy}": first}
    assert len([name for _, names, _ in store.images() for name in names]) == 4


def test_pinned_files_stay_and_others_make_room(
    store: ImageStore, root: Path, tmp_path: Path
) -> None:
    path = write(tmp_path / "x.sif", sifs.sif(sifs.partition(sifs.squashfs(root))))
    image = load(store, path)
    store.pin(image.digest, "pod")
    assert not store.collect(0).images
    store.unpin("pod")
    assert store.collect(0).images == (image.digest,)
    assert files_of(store)["layers"] == []
    loaded = load(store, path, pullable=False)
    load(store, path)
    assert not store.collect(0).images, "an image that was loaded by hand stays"
    assert store.find(loaded.digest) is not None


def test_store_survives_a_restart(where: Path, root: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "x.sif", sifs.sif(sifs.partition(sifs.squashfs(root))))
    first = ImageStore(where)
    image = load(first, path)
    first.close()
    again = ImageStore(where)
    assert again.find(image.digest) == image
    assert read_file(again.lower_directories(image), "/.singularity.d/runscript") == b"#!/bin/sh\n"
    again.close()


def test_image_of_a_registry_cannot_claim_the_files_of_a_sif(
    store: ImageStore, root: Path, tmp_path: Path
) -> None:
    """Layers are found by their diff ids, which an image may say as it likes."""
    path = write(tmp_path / "x.sif", sifs.sif(sifs.partition(sifs.squashfs(root))))
    image = load(store, path)
    with store.ingest() as ingest:
        assert not ingest.use_layer(image.digest)


def broken(root: Path) -> dict[str, tuple[bytes, type[ImageError], str]]:
    """Return files that are refused: content, error and a part of the message."""
    inner = sifs.squashfs(root)
    good = sifs.sif(sifs.partition(inner))
    other = sifs.partition(inner, code=sifs.other_code())
    huge = bytearray(good)
    struct.pack_into("<q", huge, 88, 1 << 40)
    return {
        "an empty file": (b"", InvalidImage, "is not a SIF file"),
        "text": (b"#!/bin/sh\n" * 100, InvalidImage, "is not a SIF file"),
        "a plain squashfs": (inner, UnsupportedImage, "plain squashfs of Singularity 2"),
        "cut off in the header": (good[:60], InvalidImage, "is not a SIF file"),
        "cut off in the table": (good[:2000], InvalidImage, "cut off"),
        "cut off in the data": (good[:-8192], InvalidImage, "cut off"),
        "too many descriptors": (bytes(huge), InvalidImage, "descriptors"),
        "another architecture": (sifs.sif(other), NoSuchPlatform, "is built for"),
        "ext3": (
            sifs.sif(sifs.partition(inner, file_system=sifs.EXT3)), UnsupportedImage, "has ext3"
        ),
        "encrypted": (
            sifs.sif(sifs.partition(inner, file_system=sifs.ENCRYPTED)),
            UnsupportedImage,
            "an encrypted squashfs",
        ),
        "only a definition": (
            sifs.sif((sifs.DEFFILE, b"Bootstrap: docker", b"")), InvalidImage, "nothing to run"
        ),
        "no primary partition": (
            sifs.sif(sifs.partition(inner, use=sifs.SYSTEM)), UnsupportedImage, "siftool setprim"
        ),
        "an OCI-SIF": (sifs.sif((0x400A, b"{}", b"")), UnsupportedImage, "OCI-SIF"),
        "a partition of nothing": (
            sifs.sif(sifs.partition(b"\0" * 4096)), InvalidImage, "no squashfs"
        ),
        "lz4": (
            sifs.sif(sifs.partition(sifs.squashfs(root, "-comp", "lz4"))),
            UnsupportedImage,
            "compressed with lz4",
        ),
    }  # fmt: skip


def test_what_cannot_be_used_is_named(store: ImageStore, root: Path, tmp_path: Path) -> None:
    for name, (data, error, text) in broken(root).items():
        path = write(tmp_path / "x.sif", data)
        with pytest.raises(error, match=text) as raised:
            load(store, path)
        assert str(path) in str(raised.value), name
    assert files_of(store) == {"blobs": [], "layers": [], "ingest": [], "locks": []}


def test_damaged_file_systems_are_read_without_a_crash(root: Path, tmp_path: Path) -> None:
    """Whatever its bytes are, reading ends, and the only errors are those of images."""
    good = sifs.squashfs(root, "-noI", "-noX")
    (end_of_tables,) = struct.unpack_from("<Q", good, 40)
    (tables,) = struct.unpack_from("<Q", good, 64)
    refused = 0
    for seed in range(1000):
        data, draw = bytearray(good), random.Random(seed)
        for _ in range(draw.randint(1, 4)):
            start, end = draw.choice(((0, 96), (tables, end_of_tables)))
            data[draw.randrange(start, end)] = draw.randrange(256)
        path = write(tmp_path / "damaged", bytes(data))
        with path.open("rb") as file:
            try:
                files = Squashfs(file.fileno(), 0, len(data), "x")
                for _ in range(5000):
                    if files.next() is None:
                        break
                    while files.read(1 << 20):
                        pass
            except ImageError:
                refused += 1
    assert refused > 300


def test_names_that_lead_elsewhere_are_refused(
    root: Path, tmp_path: Path, store: ImageStore
) -> None:
    (root / "victim-name").write_text("x")
    plain = sifs.squashfs(root, "-noI")  # names are stored as they are
    for evil in (b"../../out/x", b"/out/file-x", b"a\0b-of-name"):
        hostile = plain.replace(b"victim-name", evil)
        assert hostile != plain
        path = write(tmp_path / "x.sif", sifs.sif(sifs.partition(hostile)))
        with pytest.raises(InvalidImage, match="in a directory"):
            load(store, path)
    assert not (tmp_path / "out").exists()


def test_bomb_is_refused(store: ImageStore, tmp_path: Path) -> None:
    """A sparse file takes no space in a squashfs."""
    where = tmp_path / "bomb"
    where.mkdir()
    with (where / "zeros").open("wb") as file:
        file.truncate(3 << 30)
    data = sifs.sif(sifs.partition(sifs.squashfs(where)))
    with pytest.raises((InvalidImage, DiskFull), match="attack"):
        load(store, write(tmp_path / "x.sif", data))


def test_directory_in_itself_ends(store: ImageStore, tmp_path: Path) -> None:
    where = tmp_path / "loop"
    (where / "aa/bb").mkdir(parents=True)
    data = bytearray(sifs.squashfs(where, "-noI"))
    # Both directories are inodes of one block; let the inner name mean the root.
    root_inode = struct.unpack_from("<Q", data, 32)[0]
    at = data.index(b"bb", 96)
    struct.pack_into("<H", data, at - 8, root_inode & 0xFFFF)
    path = write(tmp_path / "x.sif", sifs.sif(sifs.partition(bytes(data))))
    with pytest.raises(InvalidImage, match="deep"):
        load(store, path)


def test_names_of_files_are_told_from_names_of_registries() -> None:
    assert parse_image("file:///data//./x.sif") == SifFile("/data/x.sif")
    assert isinstance(parse_image("ubuntu:24.04"), Reference)
    assert str(parse_image("oras://reg.example/x")) == "oras://reg.example/x:latest"
    for text, want in {
        "/data/x.sif": "for a SIF file write file:///data/x.sif",
        "file://x.sif": "absolute path",
        "file:///data/../etc/x": "absolute path",
        "oras://Not/A/Name": "lower-case",
        "library://x/y": "apptainer pull",
        "docker://ubuntu": "leave out docker://",
        "s3://x": "without a scheme",
    }.items():
        with pytest.raises(InvalidReference, match=want):
            parse_image(text)
