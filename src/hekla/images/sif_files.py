"""Bring SIF files into the store.

    image = await load_sif(store, descriptor, SifFile("/data/x.sif"))

The file is copied while its digest is taken, and unpacked from the copy: its owner could change it
in between, and other users would get the changes under the digest of the good file. What a file was
the last time is remembered by its inode and times, so that an unchanged file is not read again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from hekla.images.catalog import Image, SifFacts
from hekla.images.compression import check_bytes
from hekla.images.disk import disk_errors
from hekla.images.documents import ImageConfig, Platform
from hekla.images.errors import DigestMismatch, ImagePullError, InvalidImage
from hekla.images.layers import limits_for
from hekla.images.lookup import has_file
from hekla.images.platforms import this_machine
from hekla.images.reference import SifFile
from hekla.images.sif import find_root
from hekla.images.squashfs import Squashfs
from hekla.images.store import ImageStore, Ingest
from hekla.images.tar import Entry

__all__ = ["RUNSCRIPT", "add_sif", "find_sif", "load_sif"]

RUNSCRIPT: Final = "/.singularity.d/runscript"
_SHELL: Final = "/bin/sh"
_CHUNK_BYTES: Final = 1 << 20

Stop = Callable[[], bool]


def find_sif(store: ImageStore, descriptor: int, source: SifFile) -> Image | None:
    """Return the image of an open SIF file, if the store has the file as it is now."""
    return store.find(_version(descriptor, source))


async def load_sif(
    store: ImageStore,
    descriptor: int,
    source: SifFile,
    *,
    names: Sequence[str] = (),
    pullable: bool = True,
    machine: Platform | None = None,
) -> Image:
    """Return the image of an open SIF file; unpack it if the store has no file of its content.

    `names` are more names of the image. With `pullable` it may be deleted for space, because it can
    be unpacked again. The descriptor is not closed.
    """
    stop = threading.Event()

    def work() -> Image:
        what = f"the SIF file {source.path}"
        loader = _Loader(store, what, machine or this_machine(), stop.is_set)
        return loader.load(descriptor, source, names, pullable)

    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        with contextlib.suppress(Exception):
            await task
        raise


def add_sif(
    store: ImageStore,
    ingest: Ingest,
    path: Path,
    digest: str,
    what: str,
    names: Sequence[str],
    *,
    machine: Platform,
    is_stopped: Stop,
    holder: str = "",
) -> Image:
    """Add the image of a SIF file in an ingest, whose digest is checked."""
    with path.open("rb", buffering=0) as file:
        found = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    if found != digest:
        raise DigestMismatch(
            f"{what}: its file has the digest {found[:19]}…, and the manifest {digest[:19]}…; the "
            "registry is damaged, or somebody changed the image on the way"
        )
    loader = _Loader(store, what, machine, is_stopped)
    return loader.add(ingest, path, digest, names, holder=holder)


class _Loader:
    def __init__(self, store: ImageStore, what: str, machine: Platform, is_stopped: Stop) -> None:
        self._store, self._what, self._machine = store, what, machine
        self._is_stopped = is_stopped

    def load(self, descriptor: int, source: SifFile, names: Sequence[str], pullable: bool) -> Image:
        find_root(descriptor, self._machine, self._what)  # an error before the copy
        version = _version(descriptor, source)
        with self._store.ingest() as ingest:
            copy = ingest.path / "file.sif"
            digest = self._copy(descriptor, copy)
            if _version(descriptor, source) != version:
                raise InvalidImage(f"{self._what} was changed while it was read; try again")
            all_names = (str(source), version, *names)
            return self.add(
                ingest, copy, digest, all_names, pullable=pullable, former_of=str(source)
            )

    def add(
        self,
        ingest: Ingest,
        path: Path,
        digest: str,
        names: Sequence[str],
        *,
        pullable: bool = True,
        former_of: str = "",
        holder: str = "",
    ) -> Image:
        """Add the image of a file of ours, which is removed; `digest` is that of its bytes."""
        key = "sif:" + digest.partition(":")[2]
        with path.open("rb", buffering=0) as file:
            root = find_root(file.fileno(), self._machine, self._what)
            if not ingest.use_layer(key):
                files = Squashfs(file.fileno(), root.offset, root.size, self._what)
                ingest.add_files(_Stoppable(files, self._is_stopped), key, self._what)
        path.unlink()
        known = self._store.find(digest)
        image = Image(
            digest=digest,
            config_digest=digest,
            layers=ingest.layers,
            config=self._config(root.architecture),
            pullable=pullable and (known is None or known.pullable),
        )
        image = msgspec.structs.replace(image, sif=self._facts(image))
        if former_of:
            self._store.forget_former(former_of)
        ingest.add_image(image, names, holder)
        return image

    def _copy(self, descriptor: int, copy: Path) -> str:
        """Copy a file; return the digest of the copy."""
        size = os.fstat(descriptor).st_size
        check_bytes(size, limits_for(copy.parent).bytes, self._what)
        sum_, position = hashlib.sha256(), 0
        with disk_errors(self._what), copy.open("xb", buffering=0) as file:
            while position < size:
                if self._is_stopped():
                    raise ImagePullError("the unpacking was cancelled")
                data = os.pread(descriptor, min(_CHUNK_BYTES, size - position), position)
                if not data:
                    raise InvalidImage(f"{self._what} became shorter while it was read; try again")
                sum_.update(data)
                position += len(data)
                while data:
                    data = data[file.write(data) or 0 :]
        return f"sha256:{sum_.hexdigest()}"

    def _config(self, architecture: str) -> ImageConfig:
        platform = Platform(architecture or self._machine.architecture, "linux")
        return ImageConfig(platform, (), entrypoint=(RUNSCRIPT,))

    def _facts(self, image: Image) -> SifFacts:
        layers = self._store.lower_directories(image)
        return SifFacts(has_file(layers, _SHELL), has_file(layers, RUNSCRIPT))


class _Stoppable:
    """Files whose reading ends when the caller was cancelled."""

    def __init__(self, files: Squashfs, is_stopped: Stop) -> None:
        self._files, self._is_stopped = files, is_stopped

    def next(self) -> Entry | None:
        self._check()
        return self._files.next()

    def read(self, most: int, /) -> bytes:
        self._check()
        return self._files.read(most)

    def _check(self) -> None:
        if self._is_stopped():
            raise ImagePullError("the unpacking was cancelled")


def _version(descriptor: int, source: SifFile) -> str:
    """Return the name of a file as it is now: it changes with its content.

    Note: the time of the last status change cannot be set by the owner of a file.
    """
    found = os.fstat(descriptor)
    facts = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return f"{source}@{'-'.join(map(str, facts))}"
