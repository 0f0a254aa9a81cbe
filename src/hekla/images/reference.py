"""Names of images, as Docker and containerd read them, and other sources of images.

    parse_reference("ubuntu")               docker.io/library/ubuntu:latest
    parse_reference("localhost:5000/a/b:1") localhost:5000/a/b:1
    parse_source("docker-archive:/tmp/x.tar")

Note: a pod's `image` field goes through `parse_image`, which returns a file of this machine only as
a SifFile, and the caller checks that pods may read it. `parse_source` and `parse_pull` are for the
administrator's commands, which may read files and images of this machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from hekla.images.errors import InvalidReference

__all__ = [
    "Archive",
    "ArchiveKind",
    "EngineImage",
    "OrasImage",
    "Reference",
    "SifFile",
    "Source",
    "is_digest",
    "parse_image",
    "parse_pull",
    "parse_reference",
    "parse_source",
]

DEFAULT_REGISTRY: Final = "docker.io"
DEFAULT_TAG: Final = "latest"
FILE_PREFIX: Final = "file://"
ORAS_PREFIX: Final = "oras://"
PODMAN: Final = "containers-storage"
DOCKER: Final = "docker-daemon"
MAX_NAME_CHARS: Final = 255
MAX_TEXT_CHARS: Final = 1024

# The grammar of github.com/distribution/reference.
_LABEL = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_REGISTRY = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?", re.ASCII)
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_PULL_SIF: Final = (
    "hekla fetches SIF images by oras:// only; run `apptainer pull x.sif IMAGE`, and name the file "
    "as file:///path/x.sif"
)
_SCHEMES: Final = {
    "docker": "leave out docker://",
    "library": _PULL_SIF,
    "shub": _PULL_SIF,
    "http": _PULL_SIF,
    "https": _PULL_SIF,
}
_IMAGE_ID = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Reference:
    """The name of an image in a registry, in full."""

    registry: str
    repository: str
    tag: str = ""
    """Empty only if there is a digest."""
    digest: str = ""

    @property
    def name(self) -> str:
        return f"{self.registry}/{self.repository}"

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.name}{tag}{'@' if self.digest else ''}{self.digest}"

    def by_digest(self, digest: str) -> Reference:
        """Return the name of exactly this manifest in the same repository."""
        return replace(self, tag="", digest=digest)


class ArchiveKind(StrEnum):
    DOCKER_ARCHIVE = "docker-archive"
    OCI_ARCHIVE = "oci-archive"
    OCI_LAYOUT = "oci"


@dataclass(frozen=True, slots=True)
class Archive:
    """A file or directory with images."""

    kind: ArchiveKind
    path: Path
    name: str = ""
    """Which image of it; empty if it has only one."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.path}{':' if self.name else ''}{self.name}"


@dataclass(frozen=True, slots=True)
class SifFile:
    """A SIF image in a file of this machine, by its absolute path."""

    path: str

    def __str__(self) -> str:
        return f"{FILE_PREFIX}{self.path}"


@dataclass(frozen=True, slots=True)
class OrasImage:
    """A SIF image in a registry, as `apptainer push` brings it there."""

    reference: Reference

    def __str__(self) -> str:
        return f"{ORAS_PREFIX}{self.reference}"

    def by_digest(self, digest: str) -> OrasImage:
        """Return the name of exactly this manifest in the same repository."""
        return OrasImage(self.reference.by_digest(digest))


@dataclass(frozen=True, slots=True)
class EngineImage:
    """An image in the store of podman or Docker on this machine."""

    transport: str
    """As skopeo calls it."""
    reference: Reference
    names: tuple[str, ...]
    """Under which hekla has it."""

    @property
    def name(self) -> str:
        return self.reference.name

    def __str__(self) -> str:
        return f"{self.transport}:{self.reference}"


Source = Reference | Archive


def is_digest(text: str) -> bool:
    """Return whether a text is a digest in one of the two forms that are accepted."""
    return _DIGEST.fullmatch(text) is not None


def parse_reference(text: str) -> Reference:
    """Return the full name of an image; raise InvalidReference.

    A name with both a tag and a digest means the digest.
    """
    if len(text) > MAX_TEXT_CHARS:
        raise _invalid(text[:80] + "…", f"it is longer than {MAX_TEXT_CHARS} characters")
    rest, at, digest = text.partition("@")
    if at and not is_digest(digest):
        raise _invalid(text, f"{digest!r} is not a digest; write sha256: and 64 digits 0-9a-f")
    tag = ""
    if rest.rfind(":") > rest.rfind("/"):
        rest, _, tag = rest.rpartition(":")
        if not _TAG.fullmatch(tag):
            raise _invalid(text, f"{tag!r} is not a tag; write letters, digits and ._-")
    registry, repository = _split(rest)
    if not _REGISTRY.fullmatch(registry):
        raise _invalid(text, f"{registry!r} is not the address of a registry")
    if repository != repository.lower():
        raise _invalid(text, "the name of a repository has only lower-case letters")
    if not _REPOSITORY.fullmatch(repository):
        raise _invalid(text, f"{repository!r} is not a repository; write for example ubuntu:24.04")
    if len(registry) + 1 + len(repository) > MAX_NAME_CHARS:
        raise _invalid(text, f"its name is longer than {MAX_NAME_CHARS} characters")
    if not digest and not tag:
        if _IMAGE_ID.fullmatch(rest):
            raise _invalid(text, f"it is an image id; write a name, or name@sha256:{rest[:12]}…")
        tag = DEFAULT_TAG
    return Reference(registry, repository, tag, digest)


def parse_image(text: str) -> Reference | SifFile | OrasImage:
    """Return what the `image` of a container names: an image of a registry, or a SIF image.

    Note: the caller must check that the container's user may read the file.
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        if text.startswith("/"):
            raise _invalid(text, f"for a SIF file write {FILE_PREFIX}{text[:200]}")
        return parse_reference(text)
    if f"{scheme}://" == ORAS_PREFIX:
        return OrasImage(parse_reference(rest))
    if f"{scheme}://" != FILE_PREFIX:
        raise _invalid(text, _SCHEMES.get(scheme, "write it without a scheme, as ubuntu:24.04"))
    parts = rest.split("/")
    if not rest.startswith("/") or ".." in parts or not rest.isprintable():
        raise _invalid(text, f"write the absolute path of a SIF file, as {FILE_PREFIX}/data/x.sif")
    if len(rest) > MAX_TEXT_CHARS:
        raise _invalid(text[:80] + "…", f"it is longer than {MAX_TEXT_CHARS} characters")
    return SifFile("/" + "/".join(part for part in parts if part not in ("", ".")))


def parse_pull(text: str) -> Reference | OrasImage | EngineImage:
    """Return an image of a registry, or of podman (`containers-storage:`) or Docker.

    Note: only for those who may read the images of podman and Docker here.
    """
    transport, _, rest = text.partition(":")
    if text.startswith(ORAS_PREFIX):
        return OrasImage(parse_reference(text.removeprefix(ORAS_PREFIX)))
    if transport not in (PODMAN, DOCKER):
        return parse_reference(text)
    reference = given = parse_reference(rest)
    if transport == PODMAN and given.name == f"{DEFAULT_REGISTRY}/library/{rest.split(':')[0]}":
        # `podman build -t app` makes localhost/app, and podman finds it by its short name.
        reference = replace(given, registry="localhost", repository=rest.split(":")[0])
    return EngineImage(transport, reference, tuple(dict.fromkeys((str(reference), str(given)))))


def parse_source(text: str) -> Source:
    """Return a reference, or the archive or layout that `docker-archive:` and the like name."""
    kind, colon, rest = text.partition(":")
    if not colon or kind not in tuple(ArchiveKind):
        return parse_reference(text)
    path, name = _split_path(rest)
    if not path or "\0" in path:
        raise _invalid(text, f"there is no path; write {kind}:/path/to/image")
    return Archive(ArchiveKind(kind), Path(path), name)


def _split(text: str) -> tuple[str, str]:
    """Split into registry and repository; the first part is a registry only if it looks like it."""
    first, slash, rest = text.partition("/")
    is_registry = "." in first or ":" in first or first == "localhost" or first != first.lower()
    if not slash or not is_registry:
        first, rest = DEFAULT_REGISTRY, text
    if first == "index.docker.io":
        first = DEFAULT_REGISTRY
    if first == DEFAULT_REGISTRY and "/" not in rest:
        rest = f"library/{rest}"
    return first, rest


def _split_path(text: str) -> tuple[str, str]:
    """Split `path:name`; the name starts at the first colon, as in skopeo."""
    path, _, name = text.partition(":")
    return path, name


def _invalid(text: str, why: str) -> InvalidReference:
    return InvalidReference(f"image {text!r} is not a valid name: {why}")
