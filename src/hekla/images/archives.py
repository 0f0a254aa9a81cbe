"""Images in files: `docker save` archives, and OCI layouts as a directory or an archive.

They are read in place, without a tool: a layer is unpacked right out of the archive. Nothing in an
archive is trusted; its layers must have the digests of the configuration.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from hekla.images.compression import Blob
from hekla.images.documents import (
    MAX_DOCUMENT_BYTES,
    OCI_CONFIG,
    OCI_LAYER,
    Descriptor,
    ImageConfig,
    Index,
    Manifest,
    Platform,
    check_digest,
    decode_config,
    decode_document,
    decode_manifest,
    digest_of,
    encode_manifest,
)
from hekla.images.errors import ImageNotFound, InvalidImage, InvalidReference, UnsupportedImage
from hekla.images.platforms import IndexWalk, check_platform
from hekla.images.reference import Archive, ArchiveKind, parse_reference
from hekla.images.tar import Kind, TarReader

__all__ = ["ArchivedImage", "open_archive"]

MAX_MEMBERS: Final = 10_000


@dataclass(frozen=True, slots=True)
class ArchivedImage:
    """One image of an archive, which is open as long as its layers are read."""

    manifest: bytes
    config_data: bytes
    config: ImageConfig
    names: tuple[str, ...]
    """Full names that the archive gives it."""
    layers: tuple[Callable[[], Blob], ...]
    """Open the blobs, bottom layer first."""
    descriptors: tuple[Descriptor | None, ...]
    """Of the blobs; None where only diff ids are known."""


class _Files(Protocol):
    """The files of an archive or directory."""

    def open(self, name: str) -> _Section: ...


class _Section:
    """A part of an open file."""

    def __init__(self, descriptor: int, offset: int, size: int) -> None:
        self._descriptor, self._offset, self.size = descriptor, offset, size

    def read(self, size: int, /) -> bytes:
        data = os.pread(self._descriptor, min(size, self.size), self._offset)
        self._offset += len(data)
        self.size -= len(data)
        return data


@contextlib.contextmanager
def open_archive(source: Archive, machine: Platform) -> Iterator[ArchivedImage]:
    """Open the image that a source names; raise ImageNotFound or InvalidImage."""
    with contextlib.ExitStack() as stack:
        try:
            descriptor = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise ImageNotFound(f"{source} cannot be opened: {error.strerror}") from error
        stack.callback(os.close, descriptor)
        files: _Files
        if source.kind is ArchiveKind.OCI_LAYOUT:
            files = _Directory(descriptor, source, stack)
        else:
            files = _Tar(descriptor, source)
        if source.kind is ArchiveKind.DOCKER_ARCHIVE:
            image = _docker_image(files, source)
        else:
            image = _oci_image(files, source, machine)
        check_platform(image.config, machine, str(source))
        yield image


class _Directory:
    def __init__(self, descriptor: int, source: Archive, stack: contextlib.ExitStack) -> None:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise InvalidImage(f"{source} is not a directory; for an archive write oci-archive:")
        self._descriptor, self._source, self._stack = descriptor, source, stack

    def open(self, name: str) -> _Section:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            opened = os.open(name, flags, dir_fd=self._descriptor)
        except OSError as error:
            raise _missing(self._source, name) from error
        self._stack.callback(os.close, opened)
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode):
            raise _missing(self._source, name)
        return _Section(opened, 0, found.st_size)


class _Tar:
    """A tar archive by the names in it."""

    def __init__(self, descriptor: int, source: Archive) -> None:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise InvalidImage(f"{source} is not a file; for a directory write oci:")
        if os.pread(descriptor, 2, 0) == b"\x1f\x8b":
            raise UnsupportedImage(f"{source} is compressed; run gunzip {source.path} first")
        self._descriptor, self._source = descriptor, source
        self._parts: dict[str, tuple[int, int]] = {}
        self._links: dict[str, str] = {}
        stream = _TarFile(descriptor)
        reader = TarReader(stream, str(source))
        while (entry := reader.next()) is not None:
            name = posixpath.normpath(os.fsdecode(entry.path))
            if entry.kind is Kind.FILE and entry.parts is None:
                self._parts[name] = (stream.position, entry.size)
            elif entry.kind in (Kind.SYMLINK, Kind.HARD_LINK):
                # docker save before 25 wrote a layer that two images have as a link
                base = posixpath.dirname(name) if entry.kind is Kind.SYMLINK else ""
                self._links[name] = posixpath.normpath(
                    posixpath.join(base, os.fsdecode(entry.link))
                )
            if len(self._parts) + len(self._links) > MAX_MEMBERS:
                raise InvalidImage(f"{source} has more than {MAX_MEMBERS} files")

    def open(self, name: str) -> _Section:
        name = posixpath.normpath(name)
        part = self._parts.get(self._links.get(name, name))
        if part is None:
            raise _missing(self._source, name)
        return _Section(self._descriptor, *part)


class _TarFile:
    """A file as the tar reader wants it; data is skipped without reading."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size
        self.position = 0

    def read(self, size: int) -> bytes:
        data = os.pread(self._descriptor, size, self.position)
        self.position += len(data)
        return data

    def read_some(self, most: int) -> bytes:
        return self.read(most)

    def skip(self, size: int) -> int:
        there = min(size, max(0, self._size - self.position))
        self.position += there
        return there


# OCI


class _Named(msgspec.Struct):
    annotations: dict[str, str] | None = None


class _NamedIndex(msgspec.Struct):
    manifests: tuple[_Named, ...] | None = None


_REF_NAME: Final = "org.opencontainers.image.ref.name"


def _oci_image(files: _Files, source: Archive, machine: Platform) -> ArchivedImage:
    data = _document(files, "index.json")
    what = f"index.json of {source}"
    index = decode_manifest(data, what)
    if not isinstance(index, Index):
        raise InvalidImage(f"{what} is not an index; write the layout again")
    named = decode_document(data, _NamedIndex, what)
    labels = [(each.annotations or {}).get(_REF_NAME, "") for each in named.manifests or ()]
    walk = IndexWalk(machine, str(source))
    found: Index | Manifest = _choose_named(index, labels, source)
    digest = digest_of(data)
    while isinstance(found, Index):
        digest = walk.step(found, digest).digest
        data = _blob(files, digest, source)
        found = decode_manifest(data, f"the manifest {digest[:19]}… of {source}")
    config_data = _blob(files, found.config.digest, source)
    config = decode_config(config_data, f"the configuration of {source}")
    _check_number(len(found.layers), config, source)
    return ArchivedImage(
        data,
        config_data,
        config,
        _full_names([label for label in labels if label == source.name or len(labels) == 1]),
        tuple(_opener(files, _blob_path(layer.digest)) for layer in found.layers),
        found.layers,
    )


def _choose_named(index: Index, labels: list[str], source: Archive) -> Index:
    """Return the entries of an index that a source means."""
    if not source.name:
        if len(set(labels)) <= 1:
            return index
        shown = ", ".join(sorted(filter(None, labels)))[:300]
        raise InvalidReference(f"{source} has several images; add one of these names: {shown}")
    entries = zip(index.manifests, labels, strict=True)
    chosen = tuple(entry for entry, label in entries if label == source.name)
    if not chosen:
        raise ImageNotFound(f"{source} has no image {source.name!r}; it has {labels!r:.300}")
    return Index(chosen)


# docker save


class _DockerEntry(msgspec.Struct, rename="pascal"):
    config: str
    layers: tuple[str, ...] | None = None
    repo_tags: tuple[str, ...] | None = None


def _docker_image(files: _Files, source: Archive) -> ArchivedImage:
    data = _document(files, "manifest.json")
    entries = decode_document(data, tuple[_DockerEntry, ...], f"manifest.json of {source}")
    entry = _choose_tagged(entries, source)
    paths = entry.layers or ()
    config_data = _document(files, entry.config)
    config = decode_config(config_data, f"the configuration of {source}")
    _check_number(len(paths), config, source)
    sizes = [files.open(path).size for path in paths]
    layers = [
        Descriptor(diff_id, size, OCI_LAYER)
        for diff_id, size in zip(config.diff_ids, sizes, strict=True)
    ]
    described = Descriptor(digest_of(config_data), len(config_data), OCI_CONFIG)
    return ArchivedImage(
        encode_manifest(described, layers),
        config_data,
        config,
        _full_names(entry.repo_tags or ()),
        tuple(_opener(files, path) for path in paths),
        (None,) * len(paths),
    )


def _choose_tagged(entries: tuple[_DockerEntry, ...], source: Archive) -> _DockerEntry:
    if not source.name:
        if len(entries) == 1:
            return entries[0]
        tags = [tag for entry in entries for tag in entry.repo_tags or ()]
        raise InvalidReference(
            f"{source} has {len(entries)} images; add one of these names: {', '.join(tags)[:300]}"
        )
    want = str(parse_reference(source.name))
    for entry in entries:
        if want in _full_names(entry.repo_tags or ()):
            return entry
    raise ImageNotFound(f"{source} has no image {source.name!r}")


def _check_number(number: int, config: ImageConfig, source: Archive) -> None:
    if number != len(config.diff_ids):
        raise InvalidImage(
            f"{source} has {number} layers, and its configuration {len(config.diff_ids)}; "
            "write the archive again"
        )


def _full_names(names: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """Return the names that are references; a layout may have a tag alone."""
    found = []
    for name in names:
        if ":" in name:
            with contextlib.suppress(InvalidReference):
                found.append(str(parse_reference(name)))
    return tuple(found)


def _document(files: _Files, name: str) -> bytes:
    return _read_all(files.open(name), name)


def _blob(files: _Files, digest: str, source: Archive) -> bytes:
    data = _read_all(files.open(_blob_path(digest)), digest)
    check_digest(data, digest, f"the document {digest[:19]}… of {source}")
    return data


def _read_all(section: _Section, name: str) -> bytes:
    if section.size > MAX_DOCUMENT_BYTES:
        raise InvalidImage(f"{name[:80]} is larger than {MAX_DOCUMENT_BYTES >> 20} MiB, the limit")
    parts = []
    while part := section.read(MAX_DOCUMENT_BYTES):
        parts.append(part)
    return b"".join(parts)


def _opener(files: _Files, path: str) -> Callable[[], Blob]:
    return lambda: files.open(path)


def _blob_path(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _missing(source: Archive, name: str) -> InvalidImage:
    return InvalidImage(f"{source} has no file {name[:100]!r}; write it again")
