"""The store keeps images whole, shares their layers and bounds its size."""

from __future__ import annotations

import errno
import gzip
import io
import os
import stat
import subprocess
from pathlib import Path

import pytest

from hekla.images.catalog import Image
from hekla.images.documents import Descriptor
from hekla.images.errors import (
    DigestMismatch,
    DiskFull,
    ImageError,
    ImageInUse,
    ImageNotFound,
    StoreError,
    UnsupportedImage,
)
from hekla.images.layers import Limits
from hekla.images.store import ImageStore
from hekla.units.clock import ManualClock
from tests.images.builders import BuiltImage, directory, entry, file, image, sha256, tar
from tests.images.stores import add, files_of

BASE = tar(directory("tmp", mode=0o1777), directory("bin"), file("bin/sh", b"sh"))
ONE, TWO = tar(file("one", bytes(9000))), tar(file("two", bytes(20_000)))
EMPTY: dict[str, list[str]] = {"blobs": [], "layers": [], "ingest": [], "locks": []}


def hex_of(built: BuiltImage) -> list[str]:
    return sorted(f"sha256/{sha256(data)[7:]}" for data in (built.manifest, built.config))


def test_image_is_found_by_its_names_and_its_digest(store: ImageStore) -> None:
    built = image(BASE, ONE, config={"Entrypoint": ["/init"], "Env": ["A=1"]})
    names = ("docker.io/library/x:1", "docker.io/library/x:latest")
    added = add(store, built, *names)
    for name in (*names, built.digest):
        assert store.find(name) == added
    assert store.find("docker.io/library/y:1") is None
    assert added.config.entrypoint == ("/init",)
    assert store.document(added.digest) == built.manifest
    assert store.images() == [(added, names, store.clock.now())]


def test_layers_are_directories_topmost_first(store: ImageStore) -> None:
    added = add(store, image(BASE, ONE), "x")
    top, bottom = store.lower_directories(added)
    assert ((top / "one").exists(), (bottom / "bin/sh").exists()) == (True, True)
    assert bottom.name == added.layers[0].removeprefix("sha256:")
    assert store.image_bytes(added) > 9000


def test_store_is_closed_to_others_and_keeps_only_documents_as_blobs(
    store: ImageStore, where: Path
) -> None:
    built = image(BASE, ONE)
    add(store, built, "x")
    assert stat.S_IMODE(where.stat().st_mode) == 0o700
    assert files_of(store)["blobs"] == hex_of(built)
    assert files_of(store)["ingest"] == files_of(store)["locks"] == []


def test_images_share_layers(store: ImageStore) -> None:
    first, second = add(store, image(BASE, ONE), "x"), add(store, image(BASE, TWO), "y")
    assert first.layers[0] == second.layers[0]
    assert len(files_of(store)["layers"]) == 3


def test_layer_that_leans_on_its_base_is_kept_for_each_base(store: ImageStore) -> None:
    """The directory /tmp has the mode of the layer below, which differs."""
    leaning, other = tar(file("tmp/x")), tar(directory("tmp", mode=0o700))
    first, second = add(store, image(BASE, leaning), "x"), add(store, image(other, leaning), "y")
    modes = [
        stat.S_IMODE((store.lower_directories(each)[0] / "tmp").stat().st_mode)
        for each in (first, second)
    ]
    assert modes == [0o1777, 0o700]
    assert first.layers[1] != second.layers[1]
    assert add(store, image(BASE, leaning), "z").layers == first.layers


def test_layer_that_an_image_has_twice_is_one_directory(store: ImageStore) -> None:
    added = add(store, image(ONE, BASE, ONE), "x")
    assert len(added.layers) == 3
    top, bottom = store.lower_directories(added)
    assert ((top / "one").exists(), (bottom / "bin/sh").exists()) == (True, True)
    assert store.remove("x").images == (added.digest,)


def test_name_moves_to_another_image(store: ImageStore) -> None:
    first, second = add(store, image(BASE, ONE), "x"), add(store, image(BASE, TWO), "x")
    assert store.find("x") == second
    assert store.find(first.digest) == first


def test_store_is_the_same_after_it_is_opened_again(store: ImageStore, where: Path) -> None:
    added = add(store, image(BASE, ONE), "x")
    store.pin(added.digest, "container-1")
    before = files_of(store)
    store.close()
    again = ImageStore(where, clock=ManualClock())
    assert (again.find("x"), again.pins()) == (added, {"container-1": {added.digest}})
    assert files_of(again) == before
    again.close()


# What is refused


WRONG = {
    "another blob": (gzip.compress(ONE), image(TWO), "instead of"),
    "a blob that is cut off": (gzip.compress(TWO, 1, mtime=0)[:-9], image(TWO), "cannot be deco"),
    "more behind the blob": (gzip.compress(TWO, 1, mtime=0) + bytes(5), image(TWO), "instead of"),
}


@pytest.mark.parametrize(("blob", "built", "why"), WRONG.values(), ids=WRONG)
def test_wrong_blobs_leave_nothing(
    blob: bytes, built: BuiltImage, why: str, store: ImageStore
) -> None:
    for digest in built.blobs:
        if digest not in (sha256(built.config), built.digest):
            built.blobs[digest] = blob
    with pytest.raises(ImageError, match=why):
        add(store, built, "x")
    assert files_of(store) == EMPTY


def test_layer_with_another_diff_id_leaves_nothing(store: ImageStore) -> None:
    with store.ingest() as ingest, pytest.raises(DigestMismatch, match="configuration has"):
        ingest.add_layer(io.BytesIO(ONE), sha256(TWO), "layer 1 of x")
    assert files_of(store) == EMPTY


def test_image_that_mixes_digests_is_refused(store: ImageStore) -> None:
    with store.ingest() as ingest, pytest.raises(UnsupportedImage, match="mixes sha256"):
        ingest.add_layer(
            io.BytesIO(ONE), sha256(ONE), "x", descriptor=Descriptor("sha512:" + "0" * 128, 1)
        )


def test_directory_that_others_can_enter_is_refused(where: Path) -> None:
    where.mkdir(mode=0o755)
    with pytest.raises(StoreError, match="chmod 700"):
        ImageStore(where)


def test_damaged_document_is_named(store: ImageStore, where: Path) -> None:
    added = add(store, image(BASE), "x")
    (where / "blobs" / added.digest.replace(":", "/")).write_text("changed")
    with pytest.raises(DigestMismatch, match="of the store"):
        store.document(added.digest)


def test_damaged_records_are_named_with_what_to_do(store: ImageStore, where: Path) -> None:
    store.close()
    (where / "images.db").write_bytes(b"no database" * 1000)
    with pytest.raises(StoreError, match=r"delete .*images are pulled again"):
        ImageStore(where)


# Deletion


def test_pinned_image_is_not_removed(store: ImageStore) -> None:
    added = add(store, image(BASE), "x")
    store.pin(added.digest, "container-1")
    with pytest.raises(ImageInUse, match="is used by container-1"):
        store.remove("x")
    store.collect(0)
    assert store.find("x") == added
    store.unpin("container-1")
    assert store.remove("x").images == (added.digest,)
    assert files_of(store) == EMPTY


def test_removing_one_of_two_names_keeps_the_image(store: ImageStore) -> None:
    add(store, image(BASE), "x", "y")
    assert store.remove("x").images == ()
    assert store.find("x") is None
    assert store.find("y") is not None
    store.remove("y")
    assert files_of(store) == EMPTY


def test_missing_images_are_named(store: ImageStore) -> None:
    with pytest.raises(ImageNotFound, match="no image 'x'"):
        store.remove("x")
    with pytest.raises(ImageNotFound, match="pull it again"):
        store.pin("sha256:" + "0" * 64, "container-1")


def test_limit_of_bytes_deletes_the_image_used_longest_ago(where: Path) -> None:
    clock = ManualClock()
    store = ImageStore(where, clock=clock, limit_bytes=60_000)
    first = add(store, image(BASE, ONE), "one")
    clock.skip(10)
    add(store, image(BASE, TWO), "two")
    clock.skip(10)
    store.pin(first.digest, "container-1")
    store.unpin("container-1")
    add(store, image(BASE, tar(file("three", bytes(25_000)))), "three")
    assert [store.find(name) is not None for name in ("one", "two", "three")] == [True, False, True]
    store.close()


def test_image_of_a_file_is_only_deleted_by_name(store: ImageStore) -> None:
    add(store, image(BASE), "x", pullable=False)
    assert store.collect(0).images == ()
    assert store.remove("x").freed_bytes > 0


def test_layers_of_a_pull_that_goes_on_are_kept(store: ImageStore) -> None:
    add(store, image(BASE, ONE), "x")
    with store.ingest() as ingest:
        assert ingest.use_layer(sha256(BASE))
        store.remove("x")
        assert files_of(store)["layers"] == [f"sha256/{sha256(BASE)[7:]}"]
    store.collect()
    assert files_of(store) == EMPTY


def test_layers_that_somebody_removed_take_their_images_along(
    store: ImageStore, where: Path
) -> None:
    added, other = add(store, image(BASE, ONE), "x"), add(store, image(BASE), "y")
    (store.lower_directories(added)[0]).rename(where.parent / "gone")
    store.close()
    again = ImageStore(where)
    assert (again.find("x"), again.find("y")) == (None, other)
    again.close()


# A full disk


def test_full_disk_gives_a_typed_error_and_leaves_nothing(
    store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    for function in ("write", "mkdir", "rename", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(os, function, full)
            with pytest.raises(DiskFull, match="disk is full"):
                add(store, image(BASE, ONE), "x")
        store.collect()
        assert (function, files_of(store)) == (function, EMPTY)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a small file system")
def test_small_file_system_fills_up_and_is_usable_again(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "hekla-test", str(small)]
    subprocess.run(words, check=True)
    try:
        store = ImageStore(small)
        large = tar(file("large", os.urandom(6 << 20)))
        with store.ingest() as ingest, pytest.raises(DiskFull):
            ingest.add_layer(io.BytesIO(large), sha256(large), "layer 1 of x", limits=Limits())
        assert files_of(store) == EMPTY
        store.close()
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_whole_image_works_as_an_overlay(store: ImageStore) -> None:
    above = tar(entry(".wh.bin"), file("etc/hosts"))
    added: Image = add(store, image(BASE, above), "x")
    found = (store.lower_directories(added)[0] / "bin").lstat()
    assert stat.S_ISCHR(found.st_mode)
