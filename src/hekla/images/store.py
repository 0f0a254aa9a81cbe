"""The images of this machine: a directory that several processes may use at once.

    images.db               records (catalog.py)
    blobs/sha256/<hex>      manifests and configurations
    layers/sha256/<hex>/    unpacked layers, read-only by agreement, by diff id
    layers/sif/<hex>/       root file systems of SIF files, by the digest of the file
    ingest/<id>/            what a pull is bringing in; locked by ingest/<id>.lock
    locks/                  one file for each image or layer that is being fetched
    lock                    held for moments, while files and records change together

Blobs of layers are not kept. They would take another third to half of the space, and the only use
would be to push an image again, which hekla does not do. So a layer is fetched again if its
directory is lost.

A layer whose directories depend on the layers below (see `Written.inherits`) has the digest of all
their keys as its own key, instead of its diff id.

Note: files first, then their record; and at deletion the record first. Whatever a killed process
leaves is a file without a record, and is removed when the store is opened.

Note: mount options hold one page. For many layers open each lower directory, and name
/proc/self/fd/N.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from hekla.images.catalog import Catalog, Image, LayerRecord
from hekla.images.compression import Blob
from hekla.images.disk import disk_errors, sync_directory, sync_file_system
from hekla.images.documents import Descriptor, check_digest, digest_of
from hekla.images.errors import (
    DigestMismatch,
    ImageInUse,
    ImageNotFound,
    UnsupportedImage,
)
from hekla.images.garbage import Deletions, choose_deletions
from hekla.images.layers import (
    Entries,
    Limits,
    Unpacked,
    Written,
    limits_for,
    unpack,
    write,
)
from hekla.images.locks import FileLock, hold_blocking
from hekla.images.tree import remove_tree
from hekla.units.clock import Clock, SystemClock
from hekla.units.private_directory import ensure_private

__all__ = ["Image", "ImageStore", "Ingest"]

_LOCK_SUFFIX: Final = ".lock"


class ImageStore:
    """The store in a directory. Methods block; coroutines call the long ones in a thread."""

    def __init__(
        self, directory: Path, *, limit_bytes: int | None = None, clock: Clock | None = None
    ) -> None:
        """Open or create the store, and remove what killed processes left.

        `limit_bytes` bounds the layers on disk; the images used longest ago are deleted for it.
        """
        self.directory = directory
        self.locks = directory / "locks"
        self.clock: Clock = clock or SystemClock()
        self._limit_bytes = limit_bytes
        self._blobs, self._layers = directory / "blobs", directory / "layers"
        self._ingest = directory / "ingest"
        with disk_errors("the store of images"):
            ensure_private(directory)
            for path in (self._blobs, self._layers, self._ingest, self.locks):
                path.mkdir(exist_ok=True)
            self._catalog = Catalog(directory / "images.db")
            self._remove_leftovers()

    def close(self) -> None:
        self._catalog.close()

    # Images

    def find(self, name: str) -> Image | None:
        """Return the image with a full name (`str(Reference)`) or a digest."""
        return self._catalog.find(name)

    def images(self) -> list[tuple[Image, tuple[str, ...], float]]:
        """Return all images with their names and last uses."""
        return self._catalog.images()

    def image_bytes(self, image: Image) -> int:
        """Return what the layers of an image take on disk, shared ones included."""
        layers = self._catalog.layers()
        return sum(layers[key].disk_bytes for key in image.layers if key in layers)

    def lower_directories(self, image: Image) -> list[Path]:
        """Return the layers for an overlay, topmost first. Pin the image before."""
        # Some images have a layer twice. overlayfs refuses that, and only the upper one counts.
        return [self._layer_path(key) for key in dict.fromkeys(reversed(image.layers))]

    def record(self, image: Image, names: Sequence[str], holder: str = "") -> None:
        """Record more names of an image, and pin it for `holder`; this counts as a use."""
        self._catalog.put_image(image, names, self.clock.now(), holder)

    def forget_former(self, name: str) -> None:
        """Remove the names that a file with this name had in earlier versions."""
        self._catalog.remove_names_of(name)

    def document(self, digest: str) -> bytes:
        """Return a manifest or configuration of an image."""
        try:
            data = self._blob_path(digest).read_bytes()
        except FileNotFoundError as error:
            raise ImageNotFound(f"the store of images has no document {digest[:19]}…") from error
        check_digest(data, digest, f"the document {digest[:19]}… of the store")
        return data

    def remove(self, name: str) -> Deletions:
        """Remove a name, and its image if that was the last one; or an image by digest."""
        image = self.find(name)
        if image is None:
            raise ImageNotFound(f"there is no image {name!r} here; check the name")
        names = next(names for each, names, _ in self.images() if each.digest == image.digest)
        if set(names) - {name} and name != image.digest:
            self._catalog.remove_name(name)
            return Deletions()
        return self._delete(image.digest)

    def collect(self, limit_bytes: int | None = None) -> Deletions:
        """Delete layers of no image, and images until the limit of bytes is kept.

        Without a limit the one of the store is meant; 0 deletes all images that can be pulled
        again and are not in use.
        """
        limit = self._limit_bytes if limit_bytes is None else limit_bytes
        return self._delete("", limit)

    # Use by containers

    def pin(self, digest: str, holder: str) -> None:
        """Keep an image while a container uses it; `holder` names the container."""
        if not self._catalog.pin(digest, holder, self.clock.now()):
            raise ImageNotFound(f"image {digest[:19]}… is no longer here; pull it again")

    def unpin(self, holder: str) -> None:
        self._catalog.unpin(holder, self.clock.now())

    def pins(self) -> dict[str, set[str]]:
        """Return the images in use by holder, so that those of ended containers can be undone."""
        return self._catalog.pins()

    # Bringing in

    @contextlib.contextmanager
    def ingest(self) -> Iterator[Ingest]:
        """Bring in an image; what it does not record at the end is removed."""
        name = uuid.uuid4().hex
        path = self._ingest / name
        with contextlib.ExitStack() as stack:
            with disk_errors("the store of images"):
                lock = FileLock.try_lock(path.with_suffix(_LOCK_SUFFIX))
                assert lock is not None
                stack.callback(lock.release)
                path.mkdir(mode=0o700)
            ingest = Ingest(self, name, path)
            stack.callback(self._end_ingest, ingest, name)
            yield ingest

    def _end_ingest(self, ingest: Ingest, name: str) -> None:
        remove_tree(ingest.path)
        self._catalog.release_layers(name)
        if ingest.has_unused_layers:
            self.collect()

    def _add_layer(self, key: str, record: LayerRecord, unpacked: Path, ingest: str) -> None:
        """Make an unpacked layer visible."""
        target = self._layer_path(key)
        sync_file_system(unpacked)
        with self._exclusive():
            if self._catalog.hold_layer(key, ingest):
                return  # somebody else was faster
            target.parent.mkdir(exist_ok=True)
            if target.exists():  # of a process that was killed before it recorded it
                os.rename(target, unpacked.with_suffix(".old"))
            os.rename(unpacked, target)
            sync_directory(target.parent)
            self._catalog.put_layer(key, record, ingest)

    def _add_image(
        self, image: Image, names: Sequence[str], holder: str, documents: Mapping[str, Path]
    ) -> None:
        """Make an image visible, whose layers are."""
        with self._exclusive():
            for digest, path in documents.items():
                target = self._blob_path(digest)
                target.parent.mkdir(exist_ok=True)
                os.rename(path, target)
                sync_directory(target.parent)
            self.record(image, names, holder)

    def _hold_layer(self, keys: Sequence[str], ingest: str) -> str | None:
        return next((key for key in keys if self._catalog.hold_layer(key, ingest)), None)

    # Deletion

    def _delete(self, digest: str, limit_bytes: int | None = None, *, keep: str = "") -> Deletions:
        """Delete an image, if one is given, unused layers, and images above the limit."""
        catalog = self._catalog
        with self._trash() as trash, self._exclusive():
            with catalog.transaction():  # so that nothing is pinned in between
                if digest:
                    self._check_unpinned(digest)
                    catalog.delete((digest,), ())
                sizes = {key: record.disk_bytes for key, record in catalog.layers().items()}
                held = set().union(*catalog.held().values())
                uses = catalog.uses(in_use={keep})
                chosen = choose_deletions(uses, sizes, held, limit_bytes)
                catalog.delete(chosen.images, chosen.layers)
            self._move_unrecorded(trash)
        return replace(chosen, images=(digest, *chosen.images)) if digest else chosen

    def _check_unpinned(self, digest: str) -> None:
        holders = sorted(holder for holder, used in self.pins().items() if digest in used)
        if holders:
            raise ImageInUse(f"image {digest[:19]}… is used by {holders[0]}; stop it first")

    def _remove_leftovers(self) -> None:
        for path in self.locks.iterdir():
            if (lock := FileLock.try_lock(path)) is not None:
                lock.release()  # which deletes the file
        for path in self._ingest.glob("*" + _LOCK_SUFFIX):
            lock = FileLock.try_lock(path)
            if lock is None:
                continue  # its process lives
            # Under another name first: a tool whose parent was killed may still write to it.
            old = path.with_suffix(".old")
            remove_tree(old)
            with contextlib.suppress(FileNotFoundError):
                os.rename(path.with_suffix(""), old)
            remove_tree(old)
            self._catalog.release_layers(path.stem)
            lock.release()
        with self._trash() as trash, self._exclusive():
            self._forget_lost_layers()
            self._move_unrecorded(trash)

    def _forget_lost_layers(self) -> None:
        """Delete the records of layers that somebody has removed by hand, and of their images."""
        lost = {key for key in self._catalog.layers() if not self._layer_path(key).is_dir()}
        if lost:
            images = [image.digest for image, *_ in self.images() if lost & set(image.layers)]
            self._catalog.delete(images, lost)

    def _move_unrecorded(self, trash: Path) -> None:
        """Move layers and documents without a record out of the way; called under the lock."""
        known = {self._layer_path(key) for key in self._catalog.layers()}
        for image, *_ in self.images():
            known |= {self._blob_path(image.digest), self._blob_path(image.config_digest)}
        for path in [*self._layers.glob("*/*"), *self._blobs.glob("*/*")]:
            if path not in known:
                os.rename(path, trash / f"{path.parent.parent.name}-{path.name}")

    @contextlib.contextmanager
    def _trash(self) -> Iterator[Path]:
        with self.ingest() as ingest:
            yield ingest.path

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        with hold_blocking(self.directory / "lock"), disk_errors("the store of images"):
            yield

    def _layer_path(self, key: str) -> Path:
        return self._layers.joinpath(*key.split(":"))

    def _blob_path(self, digest: str) -> Path:
        return self._blobs.joinpath(*digest.split(":"))


class Ingest:
    """One image on its way into the store."""

    def __init__(self, store: ImageStore, name: str, path: Path) -> None:
        self.path = path
        """A directory of its own, which is removed at the end."""
        self.has_unused_layers = False
        """Layers were added for an image that is not recorded."""
        self._store = store
        self._name = name
        self._keys: list[str] = []
        self._documents: dict[str, Path] = {}

    @property
    def layers(self) -> tuple[str, ...]:
        """The keys of the layers so far, bottom layer first."""
        return tuple(self._keys)

    def has_layers(self, diff_ids: Sequence[str]) -> list[bool]:
        """Return for each layer of an image whether the store has it, and keep it then.

        Note: above a missing layer only those count that fit on any layer.
        """
        found: list[bool] = []
        below: list[str] = []
        for diff_id in diff_ids:
            keys = _keys(diff_id, below)[: 2 if all(found) else 1]
            key = self._store._hold_layer(keys, self._name)
            found.append(key is not None)
            below.append(key or diff_id)
        return found

    def use_layer(self, diff_id: str) -> bool:
        """Take the next layer from the store; return False if it has to be added."""
        key = self._store._hold_layer(_keys(diff_id, self._keys), self._name)
        if key is not None:
            self._keys.append(key)
        return key is not None

    def add_layer(
        self,
        blob: Blob,
        diff_id: str,
        what: str,
        *,
        descriptor: Descriptor | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Unpack the next layer and check its digests; `descriptor` is the one of the blob."""
        algorithm = diff_id.partition(":")[0]
        if descriptor and descriptor.digest.partition(":")[0] != algorithm:
            raise UnsupportedImage(f"{what} mixes sha256 and sha512; build the image with one")
        target = self.path / f"layer{len(self._keys)}"
        lowers = [self._store._layer_path(key) for key in reversed(self._keys)]
        with disk_errors(what):
            target.mkdir(mode=0o755)
            try:
                found = unpack(
                    blob,
                    target,
                    what,
                    limits or limits_for(self.path),
                    lowers=lowers,
                    algorithm=algorithm,
                )
                _check_layer(found, diff_id, descriptor, what)
                plain, chained = _keys(diff_id, self._keys)
                key = chained if found.written.inherits else plain
                self._add(key, diff_id, found.written, target)
            finally:
                if target.exists():
                    remove_tree(target)

    def add_files(self, entries: Entries, key: str, what: str) -> None:
        """Write a whole root file system as the only layer; its key must not be a digest.

        Note: an image of a registry can claim any digest as the diff id of a layer.
        """
        target = self.path / "layer0"
        with disk_errors(what):
            target.mkdir(mode=0o755)
            try:
                limits = limits_for(self.path)
                written = write(entries, target, what, limits, has_whiteouts=False)
                self._add(key, key, written, target)
            finally:
                if target.exists():
                    remove_tree(target)

    def _add(self, key: str, diff_id: str, written: Written, target: Path) -> None:
        record = LayerRecord(diff_id, written.disk_bytes, written.entries)
        self._store._add_layer(key, record, target, self._name)
        self.has_unused_layers = True
        self._keys.append(key)

    def add_document(self, data: bytes) -> str:
        """Add a manifest or configuration; return its digest."""
        digest = digest_of(data)
        path = self.path / f"document{len(self._documents)}"
        with disk_errors("a document of an image"), open(path, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self._documents[digest] = path
        return digest

    def add_image(self, image: Image, names: Sequence[str], holder: str = "") -> None:
        """Record the image under its names, pin it for `holder`, and keep the store's limit."""
        self._store._add_image(image, names, holder, self._documents)
        self._documents = {}
        self._store._catalog.release_layers(self._name)
        self.has_unused_layers = False
        self._store._delete("", self._store._limit_bytes, keep=image.digest)


def _keys(diff_id: str, below: Sequence[str]) -> tuple[str, str]:
    """Return the key of a layer by itself, and on top of the given ones."""
    return diff_id, digest_of(" ".join((*below, diff_id, "on these")).encode())


def _check_layer(found: Unpacked, diff_id: str, descriptor: Descriptor | None, what: str) -> None:
    if descriptor and (found.blob_digest, found.blob_bytes) != (descriptor.digest, descriptor.size):
        raise DigestMismatch(
            f"{what}: {found.blob_bytes} bytes with the digest {found.blob_digest[:19]}… instead "
            f"of {descriptor.size} with {descriptor.digest[:19]}…; it is damaged, or was changed "
            "on the way; fetch it again"
        )
    if found.diff_id != diff_id:
        raise DigestMismatch(
            f"{what} unpacks to {found.diff_id[:19]}…, and the image's configuration has "
            f"{diff_id[:19]}…; build the image again"
        )
