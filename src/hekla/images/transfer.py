"""Bring images into the store: from registries through skopeo, and from files.

    puller = Puller(store)
    image = await puller.pull(parse_reference("ubuntu"), progress=show)
    image = await puller.load(Archive(ArchiveKind.DOCKER_ARCHIVE, path))

The choice of a platform is ours, and all digests are checked here again: skopeo only fetches bytes.
For a layer that the store has, the place of its blob is taken by an empty file of its size. skopeo
takes it for fetched; it never gets into the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import threading
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from hekla.images.archives import open_archive
from hekla.images.catalog import Image
from hekla.images.compression import Blob, check_bytes
from hekla.images.documents import (
    ImageConfig,
    Manifest,
    Platform,
    check_digest,
    decode_config,
    decode_manifest,
    decode_sif_manifest,
    digest_of,
)
from hekla.images.errors import ImagePullError, InvalidImage, RegistryUnavailable
from hekla.images.layers import limits_for
from hekla.images.locks import hold
from hekla.images.platforms import IndexWalk, check_platform, this_machine
from hekla.images.reference import Archive, ArchiveKind, EngineImage, OrasImage, Reference
from hekla.images.sif_files import add_sif
from hekla.images.skopeo import Credentials, Skopeo
from hekla.images.store import ImageStore, Ingest
from hekla.units.clock import Clock

__all__ = ["Credentials", "Progress", "Puller"]

TIMEOUT_S: Final = 4 * 3600.0
STALL_S: Final = 300.0
"""A pull that gets nothing for so long is given up."""
SLACK_BYTES: Final = 16 << 20
"""Of manifests, indexes and the file system beside the blobs."""

_T = TypeVar("_T")

Progress = Callable[[int, int], None]
"""Gets the bytes so far and in total; called in the event loop."""


@dataclass(frozen=True, slots=True)
class _Resolved:
    """What a name means now."""

    reference: Reference
    """By digest."""
    data: bytes
    manifest: Manifest
    names: tuple[str, ...]


class Puller:
    """Pulls and loads images, several at a time."""

    def __init__(
        self,
        store: ImageStore,
        *,
        program: str = "skopeo",
        insecure_registries: Collection[str] = (),
        machine: Platform | None = None,
        timeout_s: float = TIMEOUT_S,
        stall_s: float = STALL_S,
    ) -> None:
        self._store = store
        self._program = program
        self._insecure = frozenset(insecure_registries)
        self._machine = machine or this_machine()
        self._timeout_s = timeout_s
        self._stall_s = stall_s

    async def pull(
        self,
        reference: Reference,
        *,
        credentials: Credentials | Path | None = None,
        progress: Progress | None = None,
        holder: str = "",
    ) -> Image:
        """Return the image that the registry has under a name now; fetch what is missing.

        The registry is asked in any case, so credentials are checked also for images that are here.
        The image is pinned for `holder`, if one is given, before anything could delete it.
        """
        async with self._ingest() as ingest:
            skopeo = Skopeo(
                ingest.path,
                self._store.clock,
                program=self._program,
                registry=reference.registry,
                credentials=credentials,
                insecure=is_insecure(reference.registry, self._insecure),
            )
            found = await self._resolve(skopeo, reference)
            async with self._lock(found.reference.digest):
                image = await asyncio.to_thread(self._known, found, holder)
                if image is not None:
                    return image
                return await self._fetch(skopeo, found, ingest, progress or _no_progress, holder)

    async def pull_sif(
        self,
        source: OrasImage,
        *,
        credentials: Credentials | Path | None = None,
        progress: Progress | None = None,
        holder: str = "",
    ) -> Image:
        """Return the SIF image that the registry has under a name now; fetch it if it is missing.

        Note: what the manifest says does not count until the file is here. Another registry could
        name the digest of a file that its users may not read.
        """
        reference, what = source.reference, f"image {source}"
        async with self._ingest() as ingest:
            skopeo = Skopeo(
                ingest.path,
                self._store.clock,
                program=self._program,
                registry=reference.registry,
                credentials=credentials,
                insecure=is_insecure(reference.registry, self._insecure),
            )
            data = await skopeo.manifest(reference)
            digest = reference.digest or digest_of(data)
            check_digest(data, digest, f"the manifest of {source}")
            layer = decode_sif_manifest(data, f"the manifest of {source}")
            pinned = source.by_digest(digest)
            names = tuple(dict.fromkeys((str(source), str(pinned))))
            async with self._lock(layer.digest):
                known = await asyncio.to_thread(self._store.find, str(pinned))
                if known is not None and known.digest == layer.digest:
                    await asyncio.to_thread(self._store.record, known, names, holder)
                    return known
                blobs = ingest.path / "blobs"
                blobs.mkdir()
                check_bytes(layer.size, limits_for(ingest.path).bytes, what)
                watch = _Watch(
                    ingest.path,
                    layer.size,
                    progress or _no_progress,
                    self._stall_s,
                    self._store.clock,
                    what,
                )
                await skopeo.copy(pinned.reference, blobs, watch, self._timeout_s)
                watch.finish()
                path = blobs.joinpath(*layer.digest.split(":"))
                return await _in_thread(
                    lambda stop: add_sif(
                        self._store,
                        ingest,
                        path,
                        layer.digest,
                        what,
                        names,
                        machine=self._machine,
                        is_stopped=stop.is_set,
                        holder=holder,
                    )
                )

    async def load(self, source: Archive, names: Sequence[str] = ()) -> Image:
        """Add the image of a file or directory, under its own names and the given ones."""
        async with self._ingest() as ingest:
            return await _in_thread(lambda stop: self._load(source, names, ingest, stop))

    async def copy(self, source: EngineImage) -> Image:
        """Add an image of podman or Docker on this machine, under its own and its short name."""
        async with self._ingest() as ingest:
            skopeo = Skopeo(ingest.path, self._store.clock, program=self._program)
            archive, most = ingest.path / "image.tar", limits_for(ingest.path).bytes

            def watch() -> None:
                check_bytes(_bytes_below(ingest.path), most, f"image {source}")

            await skopeo.export(source, archive, watch, self._timeout_s)
            found = Archive(ArchiveKind.DOCKER_ARCHIVE, archive)
            return await _in_thread(lambda stop: self._load(found, source.names, ingest, stop))

    # Registries

    async def _resolve(self, skopeo: Skopeo, reference: Reference) -> _Resolved:
        """Follow a name to the manifest for this machine."""
        walk = IndexWalk(self._machine, f"image {reference}")
        names = [str(reference)]
        while True:
            data = await skopeo.manifest(reference)
            if reference.digest:
                check_digest(data, reference.digest, f"the manifest of {reference}")
            digest = reference.digest or digest_of(data)
            names.append(str(reference.by_digest(digest)))
            found = decode_manifest(data, f"the manifest of {reference}")
            if isinstance(found, Manifest):
                pinned = reference.by_digest(digest)
                return _Resolved(pinned, data, found, tuple(dict.fromkeys(names)))
            reference = reference.by_digest(walk.step(found, digest).digest)

    def _known(self, found: _Resolved, holder: str) -> Image | None:
        """Return the image under its names, if the store has it."""
        image = self._store.find(digest_of(found.data))
        if image is not None:
            image = msgspec.structs.replace(image, pullable=True)
            self._store.record(image, found.names, holder)
        return image

    async def _fetch(
        self, skopeo: Skopeo, found: _Resolved, ingest: Ingest, progress: Progress, holder: str
    ) -> Image:
        what, manifest = f"image {found.reference}", found.manifest
        config_data = await skopeo.config(found.reference)
        check_digest(config_data, manifest.config.digest, f"the configuration of {what}")
        config = decode_config(config_data, f"the configuration of {what}")
        check_platform(config, self._machine, what)
        if len(config.diff_ids) != len(manifest.layers):
            raise InvalidImage(
                f"{what} has {len(manifest.layers)} layers in its manifest and "
                f"{len(config.diff_ids)} in its configuration; build it again"
            )
        blobs = ingest.path / "blobs"
        total = await asyncio.to_thread(_prepare_blobs, blobs, manifest, config, ingest)
        if total:
            check_bytes(total, limits_for(ingest.path).bytes, what)
            watch = _Watch(ingest.path, total, progress, self._stall_s, self._store.clock, what)
            await skopeo.copy(found.reference, blobs, watch, self._timeout_s)
            watch.finish()
        for number, diff_id in enumerate(config.diff_ids):
            async with self._lock(diff_id):
                await self._take_layer(ingest, blobs, manifest, number, diff_id, what)
        return await asyncio.to_thread(
            _record, ingest, found.data, config_data, config, found.names, holder, pullable=True
        )

    async def _take_layer(
        self, ingest: Ingest, blobs: Path, manifest: Manifest, number: int, diff_id: str, what: str
    ) -> None:
        if await asyncio.to_thread(ingest.use_layer, diff_id):
            return
        descriptor = manifest.layers[number]
        path = blobs.joinpath(*descriptor.digest.split(":"))

        def unpack(stop: threading.Event) -> None:
            with path.open("rb", buffering=0) as file:
                ingest.add_layer(
                    _Stoppable(file, stop),
                    diff_id,
                    f"layer {number + 1} of {what}",
                    descriptor=descriptor,
                )
            if all(layer.digest != descriptor.digest for layer in manifest.layers[number + 1 :]):
                path.unlink()  # so that the disk need not hold both forms of the whole image

        await _in_thread(unpack)

    # Files

    def _load(
        self, source: Archive, names: Sequence[str], ingest: Ingest, stop: threading.Event
    ) -> Image:
        with open_archive(source, self._machine) as archived:
            parts = zip(
                archived.layers, archived.descriptors, archived.config.diff_ids, strict=True
            )
            for number, (open_blob, descriptor, diff_id) in enumerate(parts):
                if not ingest.use_layer(diff_id):
                    ingest.add_layer(
                        _Stoppable(open_blob(), stop),
                        diff_id,
                        f"layer {number + 1} of {source}",
                        descriptor=descriptor,
                    )
            all_names = tuple(dict.fromkeys((*archived.names, *names)))
            return _record(
                ingest,
                archived.manifest,
                archived.config_data,
                archived.config,
                all_names,
                "",
                pullable=False,
            )

    @contextlib.asynccontextmanager
    async def _ingest(self) -> AsyncIterator[Ingest]:
        context = self._store.ingest()
        ingest = await asyncio.to_thread(context.__enter__)
        try:
            yield ingest
        finally:
            await asyncio.shield(asyncio.to_thread(context.__exit__, None, None, None))

    def _lock(self, digest: str) -> contextlib.AbstractAsyncContextManager[None]:
        path = self._store.locks / digest.replace(":", "-")
        return hold(path, self._store.clock)


def is_insecure(registry: str, listed: Collection[str]) -> bool:
    """Return whether plain HTTP is allowed: for listed registries and, as in Docker, loopback."""
    host = registry.rpartition(":")[0] if registry.rpartition(":")[2].isdigit() else registry
    if registry in listed or host in listed or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class _Watch:
    """Reports the progress of a copy, and ends one that stalls or brings too much."""

    def __init__(
        self, where: Path, total: int, progress: Progress, stall_s: float, clock: Clock, what: str
    ) -> None:
        self._where = where
        self._total = total
        self._progress = progress
        self._stall_s = stall_s
        self._clock = clock
        self._what = what
        self._seen = -1
        self._changed_at = clock.monotonic()

    def __call__(self) -> None:
        seen = _bytes_below(self._where)
        if seen > self._total + SLACK_BYTES:
            raise InvalidImage(
                f"{self._what}: the registry sends more than the {self._total} bytes of the "
                "manifest; it is broken, or hostile"
            )
        if seen != self._seen:
            self._seen, self._changed_at = seen, self._clock.monotonic()
            self._progress(min(seen, self._total), self._total)
        elif self._clock.monotonic() - self._changed_at > self._stall_s:
            raise RegistryUnavailable(
                f"{self._what}: the registry has sent nothing for {self._stall_s:.0f} s; "
                "the pull is tried again"
            )

    def finish(self) -> None:
        self._progress(self._total, self._total)


class _Stoppable:
    """A blob whose reading ends when the pull is cancelled."""

    def __init__(self, blob: Blob, stop: threading.Event) -> None:
        self._blob, self._stop = blob, stop

    def read(self, size: int, /) -> bytes:
        if self._stop.is_set():
            raise ImagePullError("the pull was cancelled")
        return self._blob.read(size)


async def _in_thread(work: Callable[[threading.Event], _T]) -> _T:
    """Run blocking work that ends early when its event is set; wait for it also if cancelled."""
    stop = threading.Event()
    task = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        with contextlib.suppress(Exception):
            await task
        raise


def _prepare_blobs(blobs: Path, manifest: Manifest, config: ImageConfig, ingest: Ingest) -> int:
    """Take the places of layers that the store has; return the bytes of those to fetch."""
    has = ingest.has_layers(config.diff_ids)
    missing = {
        layer.digest: layer.size
        for layer, here in zip(manifest.layers, has, strict=True)
        if not here
    }
    for layer in manifest.layers:
        path = blobs.joinpath(*layer.digest.split(":"))
        path.parent.mkdir(parents=True, exist_ok=True)
        if layer.digest not in missing and not path.exists():
            with path.open("xb") as file:
                os.truncate(file.fileno(), layer.size)
    return sum(missing.values())


def _record(
    ingest: Ingest,
    manifest: bytes,
    config_data: bytes,
    config: ImageConfig,
    names: Sequence[str],
    holder: str,
    *,
    pullable: bool,
) -> Image:
    image = Image(
        digest=ingest.add_document(manifest),
        config_digest=ingest.add_document(config_data),
        layers=ingest.layers,
        config=config,
        pullable=pullable,
    )
    ingest.add_image(image, names, holder)
    return image


def _bytes_below(where: Path) -> int:
    """Return what files take on disk; files of holes take nothing."""
    total = 0
    for path, _, names in os.walk(where):
        for name in names:
            with contextlib.suppress(OSError):  # renamed in the meantime
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
    return total


def _no_progress(_: int, __: int) -> None: ...
