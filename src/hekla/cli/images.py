"""`hekla image`: the store of images of the cluster on this machine, also while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from hekla.api.runtime_classes import OCI, PROCESS, SIF
from hekla.cli import terminal
from hekla.cli.history import memory, show_rows
from hekla.images.errors import ImageError, InvalidImage
from hekla.images.reference import (
    Archive,
    ArchiveKind,
    EngineImage,
    OrasImage,
    Reference,
    SifFile,
    parse_image,
    parse_pull,
    parse_reference,
    parse_source,
)
from hekla.images.sif import is_sif
from hekla.images.sif_files import load_sif
from hekla.images.store import Image, ImageStore
from hekla.images.transfer import Puller
from hekla.kube.data_dir import default_data_dir
from hekla.local import IMAGES_DIRECTORY
from hekla.nodeagent import sandbox
from hekla.nodeagent.pull_secrets import own_login_file
from hekla.nodeagent.security_context import PodUser
from hekla.nodeagent.uid_ranges import FIRST, create_user_namespace
from hekla.units.private_directory import ensure_private
from hekla.units.timestamps import format_time

PROGRESS_S: Final = 1.0


@contextlib.contextmanager
def opened(data_dir: Path | None) -> Iterator[ImageStore]:
    """Open the store of a data directory; errors end the command with their message."""
    where = data_dir or default_data_dir()
    try:
        ensure_private(where)
        store = ImageStore(where / IMAGES_DIRECTORY)
        try:
            yield store
        finally:
            store.close()
    except (ImageError, OSError) as error:
        raise click.ClickException(str(error)) from error


def pull(data_dir: Path | None, names: Sequence[str]) -> None:
    with opened(data_dir) as store:
        sources = [parse_pull(name) for name in names]
        login = own_login_file(os.environ, Path.home())
        for source in sources:
            if isinstance(source, EngineImage):
                image = asyncio.run(Puller(store).copy(source))
            else:
                image = asyncio.run(_pull(store, source, login))
            shown = source.names[-1] if isinstance(source, EngineImage) else source
            terminal.echo(f"{shown}\t{image.digest}\t{memory(store.image_bytes(image))}")


async def _pull(store: ImageStore, reference: Reference | OrasImage, login: Path | None) -> Image:
    show = _progress(str(reference), time.monotonic)
    if isinstance(reference, OrasImage):
        return await Puller(store).pull_sif(reference, credentials=login, progress=show)
    return await Puller(store).pull(reference, credentials=login, progress=show)


def _progress(name: str, now: Callable[[], float]) -> Callable[[int, int], None]:
    """Return what prints how far a pull is, at most once per second."""
    shown_at = -PROGRESS_S

    def show(done: int, total: int) -> None:
        nonlocal shown_at
        if now() - shown_at >= PROGRESS_S or done == total:
            shown_at = now()
            terminal.echo(f"{name}: {memory(done)} of {memory(total)}", err=True)

    return show


def load(data_dir: Path | None, source: str, names: Sequence[str]) -> None:
    with opened(data_dir) as store:
        more = [str(parse_reference(name)) for name in names]
        image = _load(store, source, more)
        known = next(each for each in store.images() if each[0].digest == image.digest)
        for name in [each for each in known[1] if "@" not in each] or (image.digest,):
            terminal.echo(f"loaded {name}")


def _load(store: ImageStore, source: str, names: Sequence[str]) -> Image:
    """Load an archive; the kind of a plain path is found out."""
    puller, given = Puller(store), Path(source)
    if not given.exists():
        archive = parse_source(source)
        if isinstance(archive, Archive):
            return asyncio.run(puller.load(archive, names))
        raise InvalidImage(f"there is no file {source}; for an image of a registry use pull")
    if is_sif(given):
        return _load_sif(store, given, names)
    if given.is_dir():
        return asyncio.run(puller.load(Archive(ArchiveKind.OCI_LAYOUT, given), names))
    try:
        return asyncio.run(puller.load(Archive(ArchiveKind.DOCKER_ARCHIVE, given), names))
    except InvalidImage as error:
        try:
            return asyncio.run(puller.load(Archive(ArchiveKind.OCI_ARCHIVE, given), names))
        except InvalidImage:
            raise error from None


def _load_sif(store: ImageStore, path: Path, names: Sequence[str]) -> Image:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        source = SifFile(str(path.absolute()))
        loading = load_sif(store, descriptor, source, names=names, pullable=False)
        return asyncio.run(loading)
    finally:
        os.close(descriptor)


def show(data_dir: Path | None) -> None:
    with opened(data_dir) as store:
        used = set().union(*store.pins().values())
        rows = [
            {
                "Image": name,
                "Digest": image.digest[:19],
                "Size": memory(store.image_bytes(image)),
                "Last used": format_time(used_at),
                "In use": "yes" if image.digest in used else "",
            }
            for image, names, used_at in sorted(store.images(), key=lambda each: each[1])
            for name in [each for each in names if "@" not in each] or names[:1] or ("<none>",)
        ]
        show_rows(["Image", "Digest", "Size", "Last used", "In use"], rows)


def prune(data_dir: Path | None) -> None:
    with opened(data_dir) as store:
        found = store.collect(0)
        terminal.echo(
            f"deleted {len(found.images)} images, freed {memory(found.freed_bytes)}; "
            "images in use and images from files stay"
        )


def remove(data_dir: Path | None, names: Sequence[str]) -> None:
    with opened(data_dir) as store:
        for name in names:
            is_digest = name.startswith(("sha256:", "sha512:"))
            full = name if is_digest else str(parse_image(name))
            found = store.find(full)
            if found is not None and _only_name(store, found) == full:
                full = found.digest  # with the names by digest that a pull has recorded
            store.remove(full)
            terminal.echo(f"removed {name}")


def _only_name(store: ImageStore, image: Image) -> str:
    """Return the only name with a tag of an image; empty if it has none or several."""
    names = next(names for each, names, _ in store.images() if each.digest == image.digest)
    tagged = [each for each in names if "@" not in each]
    return tagged[0] if len(tagged) == 1 else ""


def runtimes(data_dir: Path, user: PodUser) -> dict[str, str]:
    """Return the runtimes of `hekla status`: what each runs here, and what is missing."""
    problem = _problem(data_dir, user)
    return {
        PROCESS: "programs of this machine: `host`, and what images.toml maps",
        OCI: problem or _oci(),
        SIF: problem or "SIF files (`image: file:///path/x.sif`), unpacked by hekla itself",
    }


def _problem(data_dir: Path, user: PodUser) -> str:
    """Return why images do not run here; empty if they do."""
    where, isolation = data_dir / IMAGES_DIRECTORY, sandbox.isolation_support().isolation
    namespace = create_user_namespace(FIRST) if user == "namespace" else None
    try:
        ensure_private(where)
        problem = sandbox.image_support(where, isolation, namespace)
    except OSError as error:
        problem = str(error)
    finally:
        if namespace is not None:
            os.close(namespace)
    return f"does not run here: {problem}" if problem else ""


def _oci() -> str:
    program = shutil.which("skopeo")
    if program is None:
        return "loaded images (`hekla image load`); install skopeo to pull from registries"
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return f"images, pulled by {done.stdout.strip() or program}"
