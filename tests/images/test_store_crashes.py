"""A process that is killed at any point leaves a store without half images."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hekla.images.reference import SifFile
from hekla.images.sif_files import find_sif, load_sif
from hekla.images.store import ImageStore
from hekla.units.clock import ManualClock
from tests.clean_processes import exit_code, start
from tests.images import sifs
from tests.images.builders import directory, file, image, sha256, tar
from tests.images.stores import add, files_of

CALLS = ("open", "mkdir", "rename", "fsync", "unlink", "rmdir", "write", "close", "fchmod")
BASE, TOP = tar(file("base", b"base")), tar(directory("d", mode=0), file("d/top", b"top"))
BUILT = image(BASE, TOP)


def killed_at(number: int, work: Callable[..., None], *arguments: Any) -> bool:
    """Do some work in a child that kills itself at a system call; return whether it came so far."""
    code = exit_code(start(_work_until, number, work, arguments))
    assert code in (0, -signal.SIGKILL)
    return code != 0


def _work_until(number: int, work: Callable[..., None], arguments: Sequence[Any]) -> None:
    left = [number]
    for name in CALLS:
        _count(name, left)
    work(*arguments)
    os._exit(0)  # the end of Python has system calls of its own


def _count(name: str, left: list[int]) -> None:
    real = getattr(os, name)

    def counted(*arguments: Any, **options: Any) -> Any:
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        return real(*arguments, **options)

    setattr(os, name, counted)


def check(where: Path) -> bool:
    """Open a store, check that it is whole, and return whether it has the image."""
    store = ImageStore(where, clock=ManualClock())
    found = store.find("x")
    files = files_of(store)
    assert files["ingest"] == files["locks"] == []
    if found is not None:
        top, base = store.lower_directories(found)
        assert (base / "base").read_bytes() == b"base"
        assert (top / "d/top").read_bytes() == b"top"
        assert store.document(found.digest) == BUILT.manifest
        assert len(files["blobs"]) == 2
    else:
        assert files["blobs"] == []
    assert {f"sha256/{key[7:]}" for key in store._catalog.layers()} == set(files["layers"])
    assert store._catalog.held() == {}
    store.close()
    return found is not None


def bring_in(where: Path) -> None:
    add(ImageStore(where, clock=ManualClock()), BUILT, "x")


def take_out(where: Path) -> None:
    ImageStore(where, clock=ManualClock()).remove("x")


def load(where: Path, path: Path) -> None:
    with path.open("rb") as opened:
        asyncio.run(load_sif(ImageStore(where), opened.fileno(), SifFile(str(path))))


@pytest.mark.slow
def test_pull_that_is_killed_anywhere_can_be_repeated(tmp_path: Path) -> None:
    steps, outcomes = 0, set()
    for number in range(0, 10_000, 2):
        where = tmp_path / f"at{number}"
        if not killed_at(number, bring_in, where):
            break
        outcomes.add(check(where))
        bring_in(where)
        assert check(where)
        steps += 1
    assert steps > 30
    assert outcomes == {True, False}


@pytest.mark.slow
def test_removal_that_is_killed_anywhere_removes_all_or_nothing(tmp_path: Path) -> None:
    outcomes = set()
    for number in range(10_000):
        where = tmp_path / f"at{number}"
        bring_in(where)
        if not killed_at(number, take_out, where):
            break
        outcomes.add(check(where))
    assert outcomes == {True, False}


@pytest.mark.slow
def test_sif_file_whose_unpacking_is_killed_anywhere_can_be_loaded_again(tmp_path: Path) -> None:
    (tmp_path / "root/d").mkdir(parents=True)
    (tmp_path / "root/d/file").write_bytes(b"content")
    path = tmp_path / "x.sif"
    path.write_bytes(sifs.sif(sifs.partition(sifs.squashfs(tmp_path / "root"))))
    source, outcomes = SifFile(str(path)), set()

    def loaded(where: Path) -> bool:
        store = ImageStore(where)
        with path.open("rb") as opened:
            found = find_sif(store, opened.fileno(), source)
        files = files_of(store)
        assert files["ingest"] == files["locks"] == files["blobs"] == []
        if found is not None:
            (layer,) = store.lower_directories(found)
            assert (layer / "d/file").read_bytes() == b"content"
        store.close()
        return found is not None

    for number in range(0, 10_000, 2):
        where = tmp_path / f"at{number}"
        if not killed_at(number, load, where, path):
            break
        outcomes.add(loaded(where))
        load(where, path)
        assert loaded(where)
    assert outcomes == {True, False}


def test_two_processes_add_the_same_image(tmp_path: Path) -> None:
    where = tmp_path / "images"
    ImageStore(where).close()
    children = [start(bring_in, where) for _ in range(4)]
    assert [exit_code(child) for child in children] == [0, 0, 0, 0]
    assert check(where)


def test_opening_leaves_the_pull_of_another_process_alone(tmp_path: Path) -> None:
    where = tmp_path / "images"
    first = ImageStore(where)
    with first.ingest() as ingest:
        ingest.add_layer(io.BytesIO(BASE), sha256(BASE), "a layer")
        second = ImageStore(where)
        assert ingest.path.is_dir()
        assert second._catalog.held()
        second.collect(0)
        assert ingest.use_layer(sha256(BASE))
        second.close()
    first.close()


def test_layer_of_a_killed_process_is_replaced_without_opening_the_store_again(
    tmp_path: Path,
) -> None:
    where = tmp_path / "images"
    store = ImageStore(where, clock=ManualClock())
    orphan = where / "layers" / sha256(BASE).replace(":", "/")
    orphan.mkdir(parents=True)
    (orphan / "half").touch()
    added = add(store, BUILT, "x")
    assert os.listdir(store.lower_directories(added)[1]) == ["base"]
    store.close()
    assert check(where)
